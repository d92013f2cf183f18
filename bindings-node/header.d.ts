// Written by bindings-node/build.mjs from header.d.ts and the doc comments in bindings-node/src.

/// <reference lib="esnext.disposable" />

/** What a client is told once. Durations are milliseconds. */
export interface ConnectOptions {
  /** The lease of a watched lock; it is renewed every third of it. Default 30,000. */
  watchdog?: number
  /** How long one request may stay without a reply. Default 3,000. */
  opTimeout?: number
  /** How long it may take to reach the server. Default 5,000. */
  connectTimeout?: number
  /** How long a wait without an end goes on while no server can be reached. Default 30,000. */
  unreachableAfter?: number
  /** After how long the watchdog stops renewing a lock, so that a wedged or forgetful program loses it. Default: never. */
  maxHold?: number | null
  /** Answers a re-entry without asking the server, while the lock is valid. Default `false`. */
  localReentry?: boolean
  /** Text put in front of every lock name. Default none. */
  namePrefix?: string
  /** PEM text of the certificates that may vouch for a `rediss://` server, instead of the system's. */
  tlsCa?: string | Uint8Array
  /** The certificate chain (PEM) shown to a server that asks for one, together with `tlsKey`. */
  tlsCertificate?: string | Uint8Array
  /** The private key (PEM) of `tlsCertificate`. */
  tlsKey?: string | Uint8Array
  /** Accepts any certificate, for any host: whoever can answer in the server's place hands out locks. For tests only. */
  tlsWithoutVerification?: boolean
}

/** How a lock is asked for. Numbers are milliseconds. */
export interface LockOptions {
  /** How long to wait in all: 0 is one try, nothing or `null` is for ever. */
  wait?: number | null
  /** A fixed lease of at least 10, never renewed; nothing or `null` is the watchdog. */
  lease?: number | null
}

export interface AcquireOptions extends LockOptions {
  /** Gives the wish up. The promise rejects with the signal's reason, and nothing stays behind on the server. */
  signal?: AbortSignal | null
}

/**
 * A client of the server at `url`: `redis://`, `rediss://` (TLS) or `unix://`, with user, password and database in the
 * usual places. Without `url` it is `BANDOG_URL`, else `REDIS_URL`, else `redis://127.0.0.1:6379`.
 *
 * No I/O and no thread until it is used.
 *
 * ```js
 * const client = connect('redis://127.0.0.1:6379', { watchdog: 15_000 })
 * ```
 */
export declare function connect(url?: string | null, options?: ConnectOptions): Client

/**
 * What carries the bytes between this environment and its servers, chosen when the library is loaded: `uv`, sockets of
 * its own that node's event loop watches, or `socket`, those of `node:net`, where the loop is not libuv's (Bun, Deno).
 * The environment variable `BANDOG_TRANSPORT` forces one of the two. TLS is the library's own with both.
 *
 * Locks that are held are renewed by a thread of the library with both. With `uv` that thread also sees a grant that a
 * blocked event loop leaves unread, and gives it back after a second; with `socket` such a lock is taken until the loop
 * turns again, or its lease ends.
 */
export declare const transport: 'uv' | 'socket'

/** How many events wait for a slow listener before the oldest are dropped and counted: a whole number. */
export interface EventsOptions {
  /** Default 1,024. */
  capacity?: number
}

/**
 * The client behind {@link lock} and {@link locked}, made at the first call as `connect()` does it. Listen to its events,
 * or close it: the next call makes another.
 */
export declare function defaultClient(): Client

/**
 * A lock of the default client.
 *
 * ```js
 * const held = await lock('order_lock').acquire()
 * try { await shipOrder() } finally { await held.release() }
 * ```
 */
export declare function lock(name: string, options?: LockOptions): Lock

/**
 * A function that runs under a lock, taken for each call and released after it. `name` may be made from the arguments.
 * Generator functions are refused. The default client is made at the first call, not here.
 *
 * ```js
 * const ship = locked(order => `order:${order.id}`, async order => { ... }, { wait: 5000 })
 * await ship(order)
 * ```
 */
export declare function locked<This, Args extends unknown[], Result>(
  name: string | ((this: This, ...args: Args) => string),
  fn: (this: This, ...args: Args) => Result,
  options?: AcquireOptions,
): (this: This, ...args: Args) => Promise<Awaited<Result>>

export interface Client {
  /** {@link locked} with this client. */
  locked<This, Args extends unknown[], Result>(
    name: string | ((this: This, ...args: Args) => string),
    fn: (this: This, ...args: Args) => Result,
    options?: AcquireOptions,
  ): (this: This, ...args: Args) => Promise<Awaited<Result>>

  /** Closes the client at the end of an `await using` block. */
  [Symbol.asyncDispose](): Promise<void>
}

export interface Lock {
  /**
   * Runs `body` while the lock is held, and releases it whatever happens. Resolves to what `body` gave.
   *
   * The calls made from `body` are one scope: an `acquire` or `using` of the same lock inside re-enters. The scope ends
   * with its outermost release; code that runs on after that is nobody.
   *
   * Rejects with `LockLost` if the lock ended meanwhile, unless `body` threw: then with what it threw, which carries
   * the loss as `lockLost`, or another failure to release as `releaseError`.
   *
   * ```js
   * const receipt = await lock.using(async held => {
   *   const order = await load()
   *   held.check()
   *   return ship(order)
   * }, { wait: 5000 })
   * ```
   */
  using<Result>(body: (held: Hold) => Result, options?: AcquireOptions): Promise<Awaited<Result>>

  /** How many levels the {@link Lock.using} scope this runs in has. No I/O. */
  readonly count: number
}

export interface Hold {
  /**
   * Aborts with a {@link LockLost} as its reason when the lock ends although nobody released it: give it to `fetch`
   * and to whatever else must stop.
   */
  readonly signal: AbortSignal
}

export interface Events {
  [Symbol.asyncIterator](): Events
}

/** Why a lock was lost. */
export type LossReason = 'expired' | 'taken' | 'overwritten' | 'max_hold' | 'closed'

/** Something that happened. `remaining` is in milliseconds. */
export type LockEvent =
  | { kind: 'acquired'; name: string; count: number }
  | { kind: 'contended'; name: string; remaining: number }
  | { kind: 'renewed'; name: string; remaining: number }
  | { kind: 'doubtful'; name: string; remaining: number }
  | { kind: 'lost'; name: string; why: LossReason }
  | { kind: 'released'; name: string; count: number }
  | { kind: 'link_up' }
  | { kind: 'link_down' }
  | { kind: 'warning'; name?: string; text: string }

/** Every failure of this library. `code` is the same in Python, Node and Rust. */
export declare class LockError extends Error {
  protected constructor()
  readonly code: LockErrorCode
  /** The lock it is about. */
  readonly lockName?: string
  /** The owner it is about, as the server knows it. */
  readonly owner?: string
}

export type LockErrorCode =
  | 'timeout'
  | 'not_owner'
  | 'lock_lost'
  | 'release_unknown'
  | 'not_replicated'
  | 'permission_denied'
  | 'wrong_type'
  | 'read_only'
  | 'out_of_memory'
  | 'unreachable'
  | 'protocol'
  | 'forked_handle'
  | 'closed'
  | 'invalid_name'
  | 'invalid_lease'
  | 'invalid_url'
  | 'invalid_option'
  | 'blocking_in_loop'

/** The lock was not to be had within the wait asked for. */
export declare class LockTimeout extends LockError { readonly code: 'timeout' }
/** The caller holds nothing that it could release or extend. */
export declare class NotOwner extends LockError { readonly code: 'not_owner' | 'lock_lost' }
/** The lock ended before the section that it guarded. */
export declare class LockLost extends NotOwner { readonly code: 'lock_lost' }
/** A release was sent and never answered. Calling it again is allowed. */
export declare class ReleaseUnknown extends LockError {
  readonly code: 'release_unknown'
  /** After how many milliseconds, counted from the report, the lock is free at the latest. */
  readonly freeAtLatest: number
}
/** Fewer replicas acknowledged the grant than were asked for. */
export declare class NotReplicated extends LockError { readonly code: 'not_replicated' }
/** The server refused the user, the password, a command, a key or a channel. */
export declare class PermissionDenied extends LockError { readonly code: 'permission_denied' }
/** The key holds something that is not a lock of this kind. */
export declare class WrongType extends LockError { readonly code: 'wrong_type' }
/** The server is a replica and takes no writes. */
export declare class ReadOnly extends LockError { readonly code: 'read_only' }
/** The server has no memory left for the lock's key. */
export declare class OutOfMemory extends LockError { readonly code: 'out_of_memory' }
/** No server answered. */
export declare class Unreachable extends LockError { readonly code: 'unreachable' }
/** The server answered with something that is not the protocol, or is too old. */
export declare class Protocol extends LockError { readonly code: 'protocol' }
/** The hold belongs to the process that this one was forked from. */
export declare class ForkedHandle extends LockError { readonly code: 'forked_handle' }
/** The client was closed. */
export declare class Closed extends LockError { readonly code: 'closed' }
/** The name is empty, too long, no string, or a helper key of another lock. */
export declare class InvalidName extends LockError { readonly code: 'invalid_name' }
/** The lease is not a number of milliseconds that a server can keep. */
export declare class InvalidLease extends LockError { readonly code: 'invalid_lease' }
/** The url does not describe a server. */
export declare class InvalidUrl extends LockError { readonly code: 'invalid_url' }
/** A wait or another option is out of range, or of the wrong type. */
export declare class InvalidOption extends LockError { readonly code: 'invalid_option' }
/** A call that blocks was made in a thread whose event loop runs. Never in Node, where none blocks. */
export declare class BlockingInLoop extends LockError { readonly code: 'blocking_in_loop' }

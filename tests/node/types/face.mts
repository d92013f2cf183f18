// Every public name once, as a user would write it. Compiled, never run.
import {
  BlockingInLoop, Client, Closed, Events, ForkedHandle, Hold, InvalidLease, InvalidName, InvalidOption, InvalidUrl, Lock,
  LockError, LockLost, LockTimeout, NotOwner, NotReplicated, OutOfMemory, PermissionDenied, Protocol, ReadOnly,
  ReleaseUnknown, Unreachable, WrongType, connect, defaultClient, lock, locked, transport,
} from 'bandog'
import bandog from 'bandog'
import type {
  AcquireOptions, ConnectOptions, EventsOptions, LockErrorCode, LockEvent, LockOptions, LossReason,
} from 'bandog'

const options: ConnectOptions = {
  watchdog: 15_000, opTimeout: 1000, connectTimeout: 1000, unreachableAfter: 10_000, maxHold: null, localReentry: true,
  namePrefix: 'shop:', tlsCa: 'PEM', tlsCertificate: new Uint8Array(), tlsKey: 'PEM', tlsWithoutVerification: false,
}
const defaults: LockOptions = { wait: 5000, lease: null }
const asked: AcquireOptions = { ...defaults, signal: AbortSignal.timeout(100) }

export async function everything(): Promise<void> {
  await using client: Client = connect('redis://127.0.0.1:6379', options)
  connect()
  transport satisfies 'uv' | 'socket'
  connect(null)
  const order: Lock = client.lock('order_lock', defaults)
  const name: string = order.name
  {
    await using held: Hold = await order.acquire(asked)
    const local: [string, string, boolean, LossReason | null, number, number, number | null] =
      [held.name, held.owner, held.valid, held.lost, held.count, held.remaining(), held.token]
    held.check()
    held.onLost(error => error.code satisfies 'lock_lost')
    await fetch('http://127.0.0.1/', { signal: held.signal })
    await held.extend(10_000)
    await using again = await held.reenter({ lease: 1000 })
    void [local, again]
  }
  const perhaps: Hold | null = await order.tryAcquire({ wait: 0 })
  // @ts-expect-error it may be null
  perhaps.release()
  await perhaps?.release()

  const receipt: number = await order.using(async (held: Hold) => held.count, asked)
  const plain: string = await order.using(() => 'done')
  const state: [boolean, number, boolean, number | null, boolean] =
    [order.held(), order.count, await order.locked(), await order.remaining(), await order.forceRelease()]
  await order.release()

  const events: Events = order.events()
  for await (const event of events) {
    const dropped: number = events.dropped
    tell(event)
    if (dropped > 0) break
  }
  for await (const event of client.events({ capacity: 10 } satisfies EventsOptions)) {
    if (event.kind === 'link_up') break
  }
  await client.close()
  const over: boolean = defaultClient().closed
  void [over, name, receipt, plain, state]
}

function tell(event: LockEvent): string {
  switch (event.kind) {
    case 'acquired':
    case 'released':
      return `${event.name} ${event.count}`
    case 'contended':
    case 'renewed':
    case 'doubtful':
      return `${event.name} ${event.remaining}`
    case 'lost': {
      const why: LossReason = event.why
      return why
    }
    case 'link_up':
    case 'link_down':
      return event.kind
    case 'warning':
      return event.text
    default:
      return event satisfies never
  }
}

export const ship = locked(
  (order: { id: number }) => `order:${order.id}`,
  async (order: { id: number }) => order.id,
  { wait: 1000 },
)
export const shipped: Promise<number> = ship({ id: 1 })
export const direct: (count: number) => Promise<string> = lock('a') && locked('a', (count: number) => String(count))
export const same: typeof lock = bandog.lock
export const own = connect().locked('b', () => 1)

const classes = [
  LockError, LockTimeout, NotOwner, LockLost, ReleaseUnknown, NotReplicated, PermissionDenied, WrongType, ReadOnly,
  OutOfMemory, Unreachable, Protocol, ForkedHandle, Closed, InvalidName, InvalidLease, InvalidUrl, InvalidOption,
  BlockingInLoop,
]

export function explain(error: unknown): string {
  if (error instanceof ReleaseUnknown) return `free in ${error.freeAtLatest.toFixed()} ms`
  if (error instanceof LockLost) return error.code satisfies 'lock_lost'
  if (error instanceof LockError) {
    const code: LockErrorCode = error.code
    const about: string | undefined = error.lockName ?? error.owner
    return `${code} ${about}`
  }
  return classes.some(type => error instanceof type) ? 'ours' : 'not ours'
}

// @ts-expect-error only the library makes these
new Lock()
// @ts-expect-error a wait is a number
void lock('a').acquire({ wait: '5' })
// @ts-expect-error a name is a string
lock(5)

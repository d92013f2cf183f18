// F04-F10, F36, F37, F44: servers that refuse, forget, pause or throw clients out. The error is typed, the other holds
// live on, nothing stays without an expiry, and no text ever shows a secret (X6).
import assert from 'node:assert/strict'
import { inspect } from 'node:util'
import { after, afterEach, test } from 'node:test'

import { LockLost, LockTimeout, NotOwner, OutOfMemory, PermissionDenied, ReadOnly, ReleaseUnknown, Unreachable, connect } from 'bandog'
import { fresh, redis, sleep, until } from './redis.mjs'
import { timed } from './support/figures.mjs'
import { takeAs } from './support/lease.mjs'

const { port, url, call } = await redis('--maxmemory-policy', 'noeviction')
const client = connect(url, { watchdog: 900 })
const other = connect(url)
after(() => Promise.all([client.close(), other.close()]))

const MARKER = 'marker-5f1e-secret'
const texts = []
/** The error of a wish, kept so that all its text is searched for secrets. */
async function failure(promise) {
  const { error, value, took } = await timed(promise)
  assert.equal(value, undefined, 'it should have failed')
  texts.push(String(error), error.stack, JSON.stringify(error), inspect(error, { depth: 9, showHidden: true }), String(error.cause))
  return { error, took }
}

afterEach(async () => {
  await call('CONFIG', 'SET', 'maxmemory', 0)
  await call('REPLICAOF', 'NO', 'ONE')
  for (const text of texts.splice(0)) assert.doesNotMatch(text, /marker-5f1e/)
  const immortal = []
  for (const key of await call('KEYS', '*')) if (await call('PTTL', key) === -1) immortal.push(key)
  assert.deepEqual(immortal, [], 'nothing stays without an expiry')
  await call('FLUSHALL')
})

for (const type of ['normal', 'pubsub']) {
  test(`f04: ${type} connections killed before, while held, while waiting and during a release`, async () => {
    const kill = () => call('CLIENT', 'KILL', 'TYPE', type, 'SKIPME', 'yes')
    for (let round = 0; round < 5; round++) {
      await kill()
      const held = await client.lock(fresh()).acquire()
      held.onLost(() => assert.fail('lost'))
      await kill()
      const waiting = other.lock(held.name).acquire({ wait: 3000 })
      await sleep(20)
      await kill()
      await sleep(100)
      assert.equal(held.valid, true)
      const released = held.release()
      await kill()
      await released
      const { took, value } = await timed(waiting)
      assert.ok(took < 1000, `${took} ms`)
      assert.equal(await call('HGET', held.name, value.owner), '1')
      await value.release()
      assert.equal(await call('EXISTS', held.name), 0)
    }
  })
}

test('f05, f06: a server that pauses is no loss before the deadline', async () => {
  const held = await client.lock(fresh()).acquire()
  held.onLost(() => assert.fail('lost'))
  await sleep(320)
  await call('CLIENT', 'PAUSE', 400, 'WRITE')
  await sleep(500)
  assert.equal(held.valid, true)
  await call('DEBUG', 'SLEEP', '0.4')
  assert.equal(held.valid, true)
  await sleep(350)
  assert.equal(held.valid, true)
  assert.ok(await call('PTTL', held.name) > 400)
  await held.release()
})

test('f06: a server busy with a script of another is waited for', async () => {
  await call('CONFIG', 'SET', 'busy-reply-threshold', 50)
  const held = await client.lock(fresh()).acquire()
  const slow = connect(url)
  await (await slow.lock(fresh()).acquire()).release()
  // It ends by SCRIPT KILL from another connection.
  const busy = assert.rejects(call('EVAL', 'while true do end', 0), /SCRIPT KILL/)
  await sleep(150)
  const waiting = slow.lock(fresh()).acquire({ wait: 3000 })
  await sleep(200)
  const { Raw } = await import('./redis.mjs')
  const killer = await Raw.connect(port)
  await killer.call('SCRIPT', 'KILL')
  killer.end()
  await busy
  await (await waiting).release()
  assert.equal(held.valid, true)
  await held.release()
  await slow.close()
})

test('f07: SCRIPT FLUSH before every call, and during the waits', async () => {
  const flush = () => call('SCRIPT', 'FLUSH')
  const held = await client.lock(fresh()).acquire()
  for (let round = 0; round < 10; round++) {
    await flush()
    const inner = await held.reenter()
    await flush()
    await inner.release()
    await flush()
    assert.equal(await other.lock(held.name).tryAcquire(), null)
    await sleep(90)
  }
  assert.equal(held.valid, true)
  await flush()
  const waiting = other.lock(held.name).acquire({ wait: 2000 })
  await sleep(20)
  await flush()
  await held.release()
  await flush()
  await (await waiting).release()
  await flush()
  assert.equal(await client.lock(held.name).forceRelease(), false)
})

test('f08: out of memory: acquire says so, renewals and releases go on', async () => {
  const held = await client.lock(fresh()).acquire()
  const outer = await client.lock(fresh()).acquire()
  const inner = await outer.reenter()
  await call('CONFIG', 'SET', 'maxmemory', 1)
  const { error } = await failure(client.lock(fresh()).acquire())
  assert.ok(error instanceof OutOfMemory, String(error))
  assert.equal(error.code, 'out_of_memory')
  await failure(client.lock(fresh()).tryAcquire()).then(({ error }) => assert.ok(error instanceof OutOfMemory))
  await sleep(1200)
  assert.deepEqual([held.valid, outer.valid], [true, true])
  await inner.release()
  assert.equal(await call('HGET', outer.name, outer.owner), '1')
  await outer.release()
  await held.release()
  assert.equal(await call('DBSIZE'), 0)
})

test('f08: out of memory while waiting: told when the lock is free', async () => {
  const name = fresh()
  await takeAs(call, name, 300)
  const waiting = failure(other.lock(name).acquire({ wait: 5000 }))
  await sleep(50)
  await call('CONFIG', 'SET', 'maxmemory', 1)
  const { error, took } = await waiting
  assert.ok(error instanceof OutOfMemory, String(error))
  assert.ok(took < 1000)
})

test('f10: the server became a replica: typed, told by the deadline, no crash', async () => {
  const held = await client.lock(fresh()).acquire()
  const told = new Promise(resolve => held.onLost(resolve))
  await call('REPLICAOF', '127.0.0.1', 1)
  const began = performance.now()
  const { error } = await failure(client.lock(fresh()).acquire({ wait: 0 }))
  assert.ok(error instanceof ReadOnly, String(error))
  assert.equal(error.code, 'read_only')
  const waited = await failure(client.lock(fresh()).acquire({ wait: 300 }))
  assert.ok(waited.error instanceof ReadOnly || waited.error instanceof LockTimeout, String(waited.error))
  assert.ok(waited.took < 400)
  assert.ok(await told instanceof LockLost)
  assert.ok(performance.now() - began < 900)
  const release = await failure(held.release())
  assert.ok(release.error instanceof LockLost || release.error instanceof ReadOnly || release.error instanceof ReleaseUnknown, String(release.error))
  await call('REPLICAOF', 'NO', 'ONE')
  await (await client.lock(held.name).acquire({ wait: 2000 })).release()
})

const RIGHTS = [
  '+hello', '+client|setname', '+client|info', '+client|kill', '+evalsha', '+eval', '+exists', '+hget', '+hset', '+hdel', '+hlen', '+hgetall',
  '+hexists', '+pexpire', '+pttl', '+time', '+publish', '+subscribe', '+unsubscribe',
]
const limited = async (...rules) => {
  await call('ACL', 'SETUSER', 'least', 'reset', 'on', `>${MARKER}`, 'resetkeys', 'resetchannels', '-@all', ...rules)
  return connect(`redis://least:${MARKER}@127.0.0.1:${port}`, { watchdog: 600, opTimeout: 500, connectTimeout: 1000 })
}
const keys = ['~lk:*', '~redisson_lock__channel:*']
const channels = ['&redisson_lock__channel:*']

/** Acquire, re-enter, be waited for, be renewed, release; what failed is answered. */
async function tour(own) {
  const lock = own.lock(`lk:${fresh()}`)
  const errors = []
  const step = promise => promise.catch(error => { errors.push(error) })
  const held = await step(lock.acquire({ wait: 400 }))
  if (held) {
    held.onLost(error => errors.push(error))
    const inner = await step(held.reenter())
    const waiting = step(lock.acquire({ wait: 3000 }))
    await sleep(450)
    await step(lock.locked())
    if (inner) await step(inner.release())
    await step(held.release())
    const next = await waiting
    if (next) await step(next.release())
  }
  return errors
}

test('f36: the rights that are enough', async () => {
  const own = await limited(...RIGHTS, ...keys, ...channels)
  assert.deepEqual(await tour(own), [])
  await own.close()
})

test('f36: each right missing, one at a time: typed, or done without', async t => {
  const without = []
  const cases = [
    ...RIGHTS.map(right => [right, [...RIGHTS.filter(other => other !== right), ...keys, ...channels]]),
    ['keys', [...RIGHTS, '~elsewhere:*', ...channels]],
    ['channel', [...RIGHTS, ...keys]],
    ['reading keys', [...RIGHTS, '%W~lk:*', '~redisson_lock__channel:*', ...channels]],
    ['writing keys', [...RIGHTS, '%R~lk:*', '~redisson_lock__channel:*', ...channels]],
  ]
  // One user for each, so that they run side by side.
  await Promise.all(cases.map(async ([what, rules], at) => {
    const user = `least${at}`
    await call('ACL', 'SETUSER', user, 'reset', 'on', `>${MARKER}`, 'resetkeys', 'resetchannels', '-@all', ...rules)
    const own = connect(`redis://${user}:${MARKER}@127.0.0.1:${port}`, { watchdog: 600, opTimeout: 500, connectTimeout: 1000 })
    const errors = await tour(own)
    for (const error of errors) {
      texts.push(String(error), error.stack, inspect(error))
      const fine = [PermissionDenied, LockLost, NotOwner, ReleaseUnknown].some(type => error instanceof type)
      assert.ok(fine, `${what}: ${error}`)
    }
    if (errors.length === 0) without.push(what)
    else assert.ok(errors[0] instanceof PermissionDenied, `without ${what}: ${errors[0]}`)
    await own.close()
  }))
  t.diagnostic(`done without: ${without.join(' ')}`)
  for (const right of ['+evalsha', '+hset', '+pexpire', 'keys', 'reading keys', 'writing keys']) assert.ok(!without.includes(right), right)
  await until(async () => (await call('DBSIZE')) === 0, 3000)
})

test('f36: a channel that is refused: waiting goes by the expiry, with a warning', async () => {
  const own = await limited(...RIGHTS, ...keys)
  const events = own.events()
  const name = `lk:${fresh()}`
  await takeAs(call, name, 400)
  const { took } = await timed(own.lock(name).acquire({ wait: 3000 }))
  assert.ok(took > 350 && took < 700, `${took} ms`)
  for await (const event of events) {
    if (event.kind !== 'warning') continue
    texts.push(JSON.stringify(event))
    break
  }
  await call('ACL', 'SETUSER', 'least', ...channels)
  await own.close()
})

test('f37: a wrong password, one that is changed, a user thrown out', async () => {
  const wrong = connect(`redis://nobody:${MARKER}@127.0.0.1:${port}`, { connectTimeout: 500 })
  const refused = await failure(wrong.lock(fresh()).acquire())
  assert.ok(refused.error instanceof PermissionDenied, String(refused.error))
  assert.match(refused.error.message, /password|user/i)
  await wrong.close()

  const own = await limited('+@all', '~*', '&*')
  const held = await own.lock(fresh()).acquire()
  const told = new Promise(resolve => held.onLost(resolve))
  await call('ACL', 'SETUSER', 'least', 'resetpass', '>another')
  await call('CLIENT', 'KILL', 'USER', 'least')
  const { error } = await failure(own.lock(fresh()).acquire({ wait: 0 }))
  assert.ok(error instanceof PermissionDenied, String(error))
  assert.ok(await told instanceof LockLost)
  await failure(held.release())
  await call('ACL', 'SETUSER', 'least', `>${MARKER}`)
  await (await own.lock(held.name).acquire({ wait: 3000 })).release()
  await own.close()
  texts.push(inspect(own, { depth: 9, showHidden: true }), String(own), JSON.stringify(own))
})

test('f44: no room for another client: typed, and who is in stays in', async () => {
  const held = await client.lock(fresh()).acquire()
  await sleep(350)
  const before = (await call('CLIENT', 'LIST')).trim().split('\n').length
  await call('CONFIG', 'SET', 'maxclients', before)
  const late = connect(url, { connectTimeout: 500, opTimeout: 300 })
  const { error, took } = await failure(late.lock(fresh()).acquire({ wait: 0 }))
  assert.ok(error instanceof Unreachable || error.code === 'protocol', String(error))
  assert.ok(took < 1200)
  await sleep(900)
  assert.equal(held.valid, true)
  await call('CONFIG', 'SET', 'maxclients', 10_000)
  await (await late.lock(fresh()).acquire()).release()
  await held.release()
  await late.close()
})

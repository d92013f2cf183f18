import assert from 'node:assert/strict'
import { after, test } from 'node:test'

import { Closed, LockLost, LockTimeout, NotOwner, WrongType, connect } from 'bandog'
import { fresh, redis, sleep, until } from './redis.mjs'

const { url, call } = await redis()
const client = connect(url)
const other = connect(url)
const quick = connect(url, { watchdog: 600 })
after(() => Promise.all([client.close(), other.close(), quick.close()]))

const field = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}:\d+$/

test('an acquire leaves what Redisson would leave, a release nothing', async () => {
  const name = fresh('{a}order')
  const held = await client.lock(name).acquire()
  const [owner, count] = await call('HGETALL', name)
  assert.match(owner, field)
  assert.equal(owner, held.owner)
  assert.equal(count, '1')
  const ttl = await call('PTTL', name)
  assert.ok(ttl > 29_000 && ttl <= 30_000, `${ttl}`)
  assert.deepEqual([held.name, held.valid, held.lost, held.count, held.token], [name, true, null, 1, null])
  assert.ok(held.remaining() > 20_000 && held.remaining() < 30_000)
  held.check()
  await held.release()
  assert.equal(await call('EXISTS', name), 0)
  assert.deepEqual([held.valid, held.lost, held.count, held.remaining()], [false, null, 0, 0])
  assert.throws(() => held.check(), NotOwner)
  assert.deepEqual(await call('KEYS', `*${name}*`), [])
})

test('every acquire outside of a scope is an owner of its own', async () => {
  const lock = client.lock(fresh())
  const held = await lock.acquire()
  assert.equal(await lock.tryAcquire(), null)
  await assert.rejects(lock.acquire({ wait: 30 }), error => {
    assert.ok(error instanceof LockTimeout)
    assert.deepEqual([error.code, error.lockName, error.name], ['timeout', lock.name, 'LockTimeout'])
    return true
  })
  await held.release()
  const again = await lock.tryAcquire()
  await again.release()
})

test('a waiter is woken by the release', async () => {
  const name = fresh()
  const held = await client.lock(name).acquire()
  const waiting = other.lock(name).acquire()
  await until(async () => (await call('PUBSUB', 'NUMSUB', `redisson_lock__channel:{${name}}`))[1] === 1)
  await sleep(20)
  const began = performance.now()
  const [, grant] = await Promise.all([held.release(), waiting])
  const took = performance.now() - began
  assert.ok(took < 100, `${took} ms`)
  await grant.release()
})

test('a hundred waiters in one process take turns', async () => {
  const lock = client.lock(fresh())
  let inside = 0
  let worst = 0
  await Promise.all(Array.from({ length: 100 }, async () => {
    const held = await lock.acquire()
    worst = Math.max(worst, ++inside)
    await null
    inside--
    await held.release()
  }))
  assert.equal(worst, 1)
  assert.equal(await lock.locked(), false)
})

test('a thousand locks at once', async () => {
  const names = Array.from({ length: 1000 }, () => fresh())
  const holds = await Promise.all(names.map(name => client.lock(name).acquire()))
  assert.equal(new Set(holds.map(held => held.owner)).size, 1000)
  await Promise.all(holds.map(held => held.release()))
  assert.equal(await call('EXISTS', ...names), 0)
})

/** Keeps the loop busy and looks at the hold all the while. */
function blocked(held, span) {
  const end = performance.now() + span
  let [valid, remaining] = [true, Infinity]
  while (performance.now() < end) {
    valid &&= held.valid
    remaining = Math.min(remaining, held.remaining())
  }
  return { valid, remaining }
}

test('L8: a watched lock is kept while the event loop is blocked for ten leases', async () => {
  const name = fresh()
  const held = await quick.lock(name).acquire()
  const { valid, remaining } = blocked(held, 6000)
  assert.ok(valid, `lost with the lowest seen at ${remaining} ms`)
  const ttl = await call('PTTL', name)
  assert.ok(ttl >= 300, `${ttl} ms left of 600`)
  assert.equal(await other.lock(name).tryAcquire(), null)
  await held.release()
})

test('a fixed lease ends on time and is not renewed', async () => {
  const name = fresh()
  const held = await client.lock(name).acquire({ lease: 400 })
  const began = performance.now()
  const next = await other.lock(name).acquire()
  const took = performance.now() - began
  assert.ok(took > 250 && took < 700, `${took} ms`)
  assert.deepEqual([held.valid, held.lost], [false, 'expired'])
  assert.throws(() => held.check(), LockLost)
  await assert.rejects(held.release(), error => {
    assert.ok(error instanceof LockLost && error instanceof NotOwner)
    assert.match(error.message, /attempt to unlock lock, not locked by current thread by node id: [0-9a-f-]{36} thread-id: \d+/)
    return true
  })
  assert.equal(next.valid, true)
  await next.release()
})

test('extend keeps a fixed lease longer', async () => {
  const held = await client.lock(fresh(), { lease: 500 }).acquire()
  await held.extend(20_000)
  const ttl = await call('PTTL', held.name)
  assert.ok(ttl > 19_000 && ttl <= 20_000, `${ttl}`)
  await held.release()
})

test('reenter adds a level for whoever runs it', async () => {
  const held = await client.lock(fresh()).acquire()
  const inner = await held.reenter()
  assert.deepEqual([held.count, inner.count], [2, 2])
  assert.equal(await call('HGET', held.name, held.owner), '2')
  await held.release()
  assert.equal(inner.count, 1)
  assert.equal(await call('HGET', held.name, held.owner), '1')
  await inner.release()
  assert.equal(await call('EXISTS', held.name), 0)
})

test('a second release holds nothing, leaving after a release does nothing', async () => {
  const held = await client.lock(fresh()).acquire()
  await held.release()
  await held[Symbol.asyncDispose]()
  await assert.rejects(held.release(), NotOwner)
})

test('leaving releases', async () => {
  const held = await client.lock(fresh()).acquire()
  await held[Symbol.asyncDispose]()
  assert.equal(await call('EXISTS', held.name), 0)
})

test('lock.release outside of a scope is nobody', async () => {
  const lock = client.lock(fresh())
  const held = await lock.acquire()
  await assert.rejects(lock.release(), error => {
    assert.equal(error.constructor, NotOwner)
    assert.match(error.message, /not locked by current thread by node id/)
    return true
  })
  assert.equal(held.valid, true)
  await held.release()
})

test('what the server says of a lock', async () => {
  const lock = client.lock(fresh())
  assert.deepEqual([await lock.locked(), await lock.remaining(), await lock.forceRelease()], [false, null, false])
  const held = await lock.acquire({ lease: 5000 })
  const left = await lock.remaining()
  assert.ok(left > 4000 && left <= 5000)
  assert.equal(await lock.locked(), true)
  await held.release()
})

test('a forced release tells the holder', async () => {
  const lock = quick.lock(fresh())
  const held = await lock.acquire()
  const told = new Promise(resolve => held.onLost(resolve))
  assert.equal(await other.lock(lock.name).forceRelease(), true)
  assert.ok(await told instanceof LockLost)
  await assert.rejects(held.release(), LockLost)
})

test('F37: a key of another kind is refused and left alone', async () => {
  const name = fresh()
  await call('SET', name, 'mine')
  await assert.rejects(client.lock(name).acquire({ wait: 0 }), WrongType)
  assert.equal(await call('GET', name), 'mine')
})

test('close releases what is held and ends what waits', async () => {
  const passing = connect(url)
  const name = fresh()
  const held = await passing.lock(name).acquire()
  const closed = error => error instanceof Closed && error.lockName === name
  const waiting = assert.rejects(passing.lock(name).acquire(), closed)
  await sleep(30)
  await passing.close()
  await waiting
  assert.equal(await call('EXISTS', name), 0)
  assert.equal(held.valid, false)
  await assert.rejects(passing.lock(name).acquire(), closed)
  await passing.close()
})

test('F04: a killed connection costs a moment', async () => {
  const name = fresh()
  const held = await client.lock(name).acquire()
  await call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes')
  assert.equal(held.valid, true)
  await held.release()
  const began = performance.now()
  const again = await client.lock(name).acquire()
  assert.ok(performance.now() - began < 300)
  await again.release()
})

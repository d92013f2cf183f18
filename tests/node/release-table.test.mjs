// What a release reports: every row of the table in section 3 of the design, and S4: what is over stays over.
import assert from 'node:assert/strict'
import { after, test } from 'node:test'

import { LockLost, NotOwner, ReleaseUnknown, connect } from 'bandog'
import { fresh, redis, sleep, until } from './redis.mjs'
import { timed } from './support/figures.mjs'
import { STRANGER, freeAs, takeAs } from './support/lease.mjs'
import { proxy } from './support/proxy.mjs'

const { url, port, call } = await redis()
const wire = await proxy(port)
const OP = 500
const client = connect(wire.url, { opTimeout: OP, watchdog: 3000 })
const quick = connect(url, { watchdog: 600 })
after(async () => {
  await wire.tell('pass')
  await Promise.all([client.close(), quick.close()])
})

const gone = name => until(async () => !(await call('EXISTS', name)), 2000)
const wording = /attempt to unlock lock, not locked by current thread by node id: [0-9a-f-]{36} thread-id: \d+/

function lost(held) {
  return error => {
    assert.ok(error instanceof LockLost && error instanceof NotOwner, String(error))
    assert.deepEqual([error.code, error.lockName, error.owner], ['lock_lost', held.name, held.owner])
    assert.match(error.message, wording)
    return true
  }
}

test('valid, answered freed or still n: Released', async () => {
  const held = await client.lock(fresh()).acquire()
  const inner = await held.reenter()
  assert.equal(await inner.release(), undefined)
  assert.equal(await call('HGET', held.name, held.owner), '1')
  assert.equal(await held.release(), undefined)
  assert.deepEqual([held.valid, held.lost, held.count], [false, null, 0])
})

test('valid, an earlier send unknown, answered freed: Released', async () => {
  const held = await client.lock(fresh()).acquire()
  await wire.tell('drop redisson_lock__channel reset')
  await held.release()
  assert.equal(await call('EXISTS', held.name), 0)
})

test('valid, an earlier send unknown, answered not ours: Released, for it was ours that did it', async () => {
  for (let round = 0; round < 5; round++) {
    const held = await client.lock(fresh()).acquire()
    await wire.tell('lose redisson_lock__channel reset')
    await held.release()
    assert.equal(held.lost, null)
    assert.equal(await call('EXISTS', held.name), 0)
  }
})

test('the same when another took it in between: his lock is left alone', async () => {
  const held = await client.lock(fresh()).acquire()
  const stolen = quick.lock(held.name).acquire()
  await sleep(20)
  await wire.tell('lose redisson_lock__channel reset')
  await held.release()
  const next = await stolen
  assert.equal(await call('HGET', held.name, next.owner), '1')
  await next.release()
})

test('an inner release whose reply is lost takes one level, once', async () => {
  const held = await client.lock(fresh()).acquire()
  const [second, third] = [await held.reenter(), await held.reenter()]
  await wire.tell('lose redisson_lock__channel reset')
  await third.release()
  assert.equal(await call('HGET', held.name, held.owner), '2')
  await wire.tell('drop redisson_lock__channel reset')
  await second.release()
  assert.equal(await call('HGET', held.name, held.owner), '1')
  await held.release()
  assert.equal(await call('EXISTS', held.name), 0)
})

test('valid, answered not ours, nothing unknown: LockLost', async () => {
  const deleted = await client.lock(fresh()).acquire()
  await call('DEL', deleted.name)
  await assert.rejects(deleted.release(), lost(deleted))

  const taken = await client.lock(fresh()).acquire()
  await call('DEL', taken.name)
  await takeAs(call, taken.name, 5000)
  await assert.rejects(taken.release(), lost(taken))
  assert.equal(await call('HGET', taken.name, STRANGER), '1')
  await freeAs(call, taken.name)
})

test('Lost when the release began: LockLost, and only once', async () => {
  const held = await quick.lock(fresh()).acquire()
  await call('DEL', held.name)
  await new Promise(resolve => held.onLost(resolve))
  await assert.rejects(held.release(), lost(held))
  await assert.rejects(held.release(), error => error instanceof NotOwner)
})

test('past the deadline, though the key is still ours: LockLost, and the key goes', async () => {
  const held = await client.lock(fresh()).acquire({ lease: 300 })
  await call('PEXPIRE', held.name, 60_000)
  await until(() => !held.valid, 1000)
  await assert.rejects(held.release(), lost(held))
  await gone(held.name)
})

test('no answer within opTimeout: ReleaseUnknown, says when it is free at the latest, and goes on trying', async () => {
  const held = await client.lock(fresh()).acquire()
  await wire.tell('stall both')
  const { error, took } = await timed(held.release())
  assert.ok(error instanceof ReleaseUnknown, String(error))
  assert.deepEqual([error.code, error.lockName, error.owner], ['release_unknown', held.name, held.owner])
  assert.ok(error.freeAtLatest > 0 && error.freeAtLatest <= 3000, `${error.freeAtLatest}`)
  assert.ok(took >= OP - 20 && took < OP + 150, `${took} ms`)
  assert.deepEqual([held.valid, held.lost], [false, null])
  await wire.tell('reset')
  assert.ok(await call('PTTL', held.name) > 2000, 'what was stalled did not arrive')
  await wire.tell('pass')
  const { took: later } = await timed(gone(held.name))
  assert.ok(later < 1500, `${later} ms`)
})

test('no answer, and none to come: renewal has stopped, the lease ends it', async () => {
  const lone = connect(wire.url, { opTimeout: 200, watchdog: 900 })
  const held = await lone.lock(fresh()).acquire()
  await sleep(350)
  await wire.tell('drop redisson_lock__channel silent 100')
  const { error } = await timed(held.release())
  assert.ok(error instanceof ReleaseUnknown, String(error))
  const promised = performance.now() + error.freeAtLatest
  let last = Infinity
  for (;;) {
    const left = await call('PTTL', held.name)
    if (left < 0) break
    assert.ok(left <= last, `renewed after the release began: ${last} to ${left}`)
    last = left
    await sleep(10)
  }
  assert.ok(performance.now() <= promised + 50, 'later than promised')
  await wire.tell('pass')
  await lone.close()
})

test('calling again after ReleaseUnknown is allowed', async () => {
  const held = await client.lock(fresh()).acquire()
  await wire.tell('stall up')
  await assert.rejects(held.release(), ReleaseUnknown)
  const again = held.release()
  await wire.tell('pass')
  const { error } = await timed(again)
  assert.ok(error === undefined || error instanceof NotOwner || error instanceof ReleaseUnknown, String(error))
  await gone(held.name)
})

test('a block whose release is not answered', async () => {
  const lock = client.lock(fresh())
  await assert.rejects(lock.using(() => wire.tell('stall both')), ReleaseUnknown)
  await wire.tell('pass')
  await wire.tell('reset')
  await gone(lock.name)
  const mistake = new Error('mine')
  await assert.rejects(lock.using(async () => {
    await wire.tell('stall both')
    throw mistake
  }), error => error === mistake && error.releaseError instanceof ReleaseUnknown)
  await wire.tell('pass')
  await wire.tell('reset')
  await gone(lock.name)
})

test('NotOwner is for who holds nothing', async () => {
  const lock = client.lock(fresh())
  for (const release of [() => lock.release(), () => lock.using(async held => { await held.release(); await lock.release() })]) {
    await assert.rejects(release(), error => {
      assert.equal(error.constructor, NotOwner)
      assert.equal(error.code, 'not_owner')
      assert.match(error.message, wording)
      return true
    })
  }
})

test('s4: lost by its deadline it sends nothing until the margin is over', async () => {
  const lone = connect(wire.url, { opTimeout: 400 })
  await (await lone.lock(fresh()).acquire()).release()
  const held = await lone.lock(fresh()).acquire({ lease: 1500 })
  await call('PEXPIRE', held.name, 60_000)
  await new Promise(resolve => held.onLost(resolve))
  const told = performance.now()
  const before = await wire.count('EVALSHA')
  // M is 150 here: others must wait that long, and nothing of ours may shorten it.
  while (performance.now() < told + 110) {
    assert.equal(await call('EXISTS', held.name), 1)
    await sleep(5)
  }
  assert.equal(await wire.count('EVALSHA'), before)
  await gone(held.name)
  await assert.rejects(held.release(), lost(held))
  await lone.close()
})

test('s4: a late reply revives nothing', async () => {
  const lone = connect(wire.url, { opTimeout: 3000, watchdog: 500 })
  const held = await lone.lock(fresh()).acquire()
  await wire.tell('stall down')
  await new Promise(resolve => held.onLost(resolve))
  await wire.tell('resume')
  await sleep(100)
  assert.deepEqual([held.valid, held.lost, held.remaining()], [false, 'expired', 0])
  await assert.rejects(held.extend(5000), LockLost)
  await assert.rejects(held.reenter(), LockLost)
  await assert.rejects(held.release(), lost(held))
  await gone(held.name)
  await lone.close()
})

// L6, L8: the watchdog keeps what is held, no more and no longer than asked, whatever the event loop does.
import assert from 'node:assert/strict'
import { after, test } from 'node:test'

import { LockLost, connect } from 'bandog'
import { block, fresh, redis, sleep } from './redis.mjs'
import { asked } from './support/figures.mjs'
import { least } from './support/lease.mjs'
import { watch } from './support/sampler.mjs'

const { url, port, call } = await redis()
const LEASE = 600
const client = connect(url, { watchdog: LEASE })
const slow = connect(url)
after(() => Promise.all([client.close(), slow.close()]))

test('l8: held for ten leases with the event loop blocked, never under half of one, nobody else gets in', async t => {
  const held = await client.lock(fresh()).acquire()
  held.onLost(() => assert.fail('lost'))
  const { seen } = await watch({ url, port, name: held.name, span: 10 * LEASE })
  block(10 * LEASE + 300)
  const report = await seen
  t.diagnostic(`${report.looks} looks, least ${report.least} ms of ${LEASE}`)
  assert.ok(report.looks > 100, `the watcher itself was kept from looking: ${report.looks}`)
  assert.ok(report.least >= LEASE / 2, `${report.least} ms left of ${LEASE}`)
  assert.equal(report.gotIn, false)
  assert.equal(held.valid, true)
  await held.release()
})

test('held for ten leases: renewed once a third, a hundred locks a request, never under half of one', async () => {
  const names = Array.from({ length: 250 }, () => fresh())
  const holds = await Promise.all(names.map(name => client.lock(name).acquire()))
  await sleep(LEASE)
  await call('CONFIG', 'RESETSTAT')
  const lowest = await least(call, names, sleep(10 * LEASE))
  const { tries } = await asked(call)
  assert.ok(lowest.ttl >= LEASE / 2, `${lowest.ttl} ms left for ${lowest.name}`)
  // The EVALs that looked at the leases are among them: count these apart.
  const looks = Number(/cmdstat_eval:calls=(\d+)/.exec(await call('INFO', 'commandstats'))[1])
  const renewals = tries - looks
  assert.ok(renewals >= 3 * 27 && renewals <= 3 * 42, `${renewals} requests for 250 locks in 30 thirds`)
  assert.ok(holds.every(held => held.valid))
  await Promise.all(holds.map(held => held.release()))
})

test('an explicit lease is not renewed, and is over before its key is', async () => {
  const lock = client.lock(fresh(), { lease: 500 })
  const events = lock.events()
  const began = performance.now()
  const held = await lock.acquire()
  const remaining = held.remaining()
  const deadline = performance.now() + remaining
  const told = new Promise(resolve => held.onLost(() => resolve([performance.now(), held.valid])))
  // A tenth of the lease, at least 50 ms, lies between its end here and that of its key.
  assert.ok(remaining <= 450 && remaining > 250, `${remaining}`)
  let last = Infinity
  for (;;) {
    const left = await call('PTTL', held.name)
    if (left < 0) break
    assert.ok(left <= last + 1 && left <= 500, `grew from ${last} to ${left}`)
    assert.ok(held.remaining() <= Math.max(0, left - 48), 'the margin is left')
    last = left
    await sleep(5)
  }
  // However late this runs: the key is gone, so it has been over for long.
  assert.equal(held.valid, false)
  const gone = performance.now() - began
  assert.ok(gone > 498 && gone < 2000, `gone after ${gone} ms`)
  const [at, valid] = await told
  assert.equal(valid, false)
  assert.ok(at > deadline - 3 && at < deadline + 1000, `told ${at - deadline} ms after the deadline`)
  const kinds = []
  for await (const event of events) {
    kinds.push(event.kind === 'lost' ? `lost ${event.why}` : event.kind)
    if (event.kind === 'lost') break
  }
  assert.deepEqual(kinds, ['acquired', 'lost expired'])
  await assert.rejects(held.release(), LockLost)
})

test('one deadline for all levels: the longest asked for', async () => {
  const held = await client.lock(fresh()).acquire({ lease: 2000 })
  const short = await held.reenter({ lease: 100 })
  assert.ok(await call('PTTL', held.name) > 1800, 'a shorter level does not shorten')
  assert.ok(held.remaining() > 1500)
  await short.release()
  assert.ok(await call('PTTL', held.name) > 1700, 'nor does its end')
  const long = await held.reenter({ lease: 9000 })
  assert.ok(await call('PTTL', held.name) > 8800)
  await long.release()
  assert.ok(await call('PTTL', held.name) > 8000)
  await held.release()
})

test('a fixed hold that a watched level joins is watched until the outermost release', async () => {
  const held = await client.lock(fresh()).acquire({ lease: 900 })
  const inner = await held.reenter()
  await inner.release()
  await sleep(1500)
  assert.equal(held.valid, true)
  assert.ok(await call('PTTL', held.name) >= LEASE / 2)
  await held.release()
  assert.equal(await call('EXISTS', held.name), 0)
})

test('a renewal never shortens what extend asked for', async () => {
  const held = await client.lock(fresh()).acquire()
  await held.extend(20_000)
  await sleep(LEASE)
  const left = await call('PTTL', held.name)
  assert.ok(left > 19_000 && left <= 20_000, `${left}`)
  assert.ok(held.remaining() > 16_000)
  await held.release()
})

test('max_hold: a wedged program loses its lock, and is told why', async () => {
  const capped = connect(url, { watchdog: 300, maxHold: 700 })
  const lock = capped.lock(fresh())
  const events = lock.events()
  const held = await lock.acquire()
  const began = performance.now()
  const told = new Promise(resolve => held.onLost(resolve))
  block(600)
  assert.equal(held.valid, true)
  assert.ok(await told instanceof LockLost)
  const took = performance.now() - began
  assert.ok(took > 650 && took < 1100, `${took} ms`)
  const seen = []
  for await (const event of events) {
    seen.push(event)
    if (event.kind === 'lost') break
  }
  assert.equal(seen.at(-1).why, 'max_hold')
  await (await slow.lock(held.name).acquire({ wait: 500 })).release()
  await held.release().catch(error => assert.ok(error instanceof LockLost))
  await capped.close()
})

test('renewal stops with the release and leaves the next holder alone', async () => {
  const lock = client.lock(fresh())
  await (await lock.acquire()).release()
  const next = await slow.lock(lock.name).acquire({ lease: 5000 })
  await call('PEXPIRE', lock.name, 4000)
  await sleep(LEASE)
  assert.ok(await call('PTTL', lock.name) < 4000 - LEASE + 50)
  await next.release()
})

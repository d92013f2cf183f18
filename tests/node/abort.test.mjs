// F33: an abort before, during and after an acquire leaves nothing behind and returns at once.
import assert from 'node:assert/strict'
import { after, test } from 'node:test'

import { InvalidOption, connect } from 'bandog'
import { block, fresh, redis, sleep, until } from './redis.mjs'
import { median, summary } from './support/figures.mjs'

const { url, call } = await redis()
const client = connect(url)
const other = connect(url)
after(() => Promise.all([client.close(), other.close()]))

test('before: nothing is sent', async () => {
  const reason = new Error('no')
  await assert.rejects(client.lock(fresh()).acquire({ signal: AbortSignal.abort(reason) }), error => error === reason)
  await assert.rejects(client.lock(fresh()).tryAcquire({ signal: AbortSignal.abort(5) }), error => error === 5)
})

test('while waiting: returns at once', async t => {
  const lock = client.lock(fresh())
  const held = await other.lock(lock.name).acquire()
  const took = []
  for (let round = 0; round < 15; round++) {
    const controller = new AbortController()
    const waiting = lock.acquire({ signal: controller.signal })
    await sleep(20)
    const began = performance.now()
    controller.abort()
    await assert.rejects(waiting, { name: 'AbortError' })
    took.push(performance.now() - began)
  }
  t.diagnostic(summary(took))
  assert.ok(median(took) < 50 && Math.max(...took) < 500, summary(took))
  await held.release()
  await sleep(50)
  assert.equal(await call('EXISTS', lock.name), 0)
})

test('after: nothing happens', async () => {
  const controller = new AbortController()
  const held = await client.lock(fresh()).acquire({ signal: controller.signal })
  controller.abort()
  await sleep(20)
  assert.equal(held.valid, true)
  assert.equal(await call('EXISTS', held.name), 1)
  await held.release()
})

test('a grant that came in the same turn is given back', async () => {
  for (let round = 0; round < 20; round++) {
    const lock = client.lock(fresh())
    const controller = new AbortController()
    const promise = lock.acquire({ signal: controller.signal })
    block(5)
    controller.abort()
    await assert.rejects(promise, { name: 'AbortError' })
    await until(async () => !(await call('EXISTS', lock.name)), 1000)
  }
})

test('a sweep over the whole of an acquire leaves no orphan', async () => {
  const names = []
  for (let round = 0; round < 300; round++) {
    const lock = client.lock(fresh())
    names.push(lock.name)
    const controller = new AbortController()
    const promise = lock.acquire({ signal: controller.signal })
    const turns = round % 12
    for (let turn = 0; turn < turns; turn++) await new Promise(resolve => setImmediate(resolve))
    block((round % 7) * 0.1)
    controller.abort()
    const outcome = await promise.then(held => held, error => error)
    if (outcome instanceof Error) assert.equal(outcome.name, 'AbortError')
    else await outcome.release()
  }
  await until(async () => (await call('EXISTS', ...names)) === 0, 2000)
})

test('a sweep over waiters that are granted while they give up', async () => {
  for (let round = 0; round < 60; round++) {
    const lock = client.lock(fresh())
    const held = await other.lock(lock.name).acquire()
    const controller = new AbortController()
    const waiting = lock.acquire({ signal: controller.signal })
    await sleep(2)
    const released = held.release()
    if (round % 2) await released
    for (let turn = 0; turn < round % 8; turn++) await new Promise(resolve => setImmediate(resolve))
    controller.abort()
    const outcome = await waiting.then(grant => grant, error => error)
    await released
    if (outcome instanceof Error) assert.equal(outcome.name, 'AbortError')
    else await outcome.release()
    await until(async () => !(await call('EXISTS', lock.name)), 1000)
  }
})

test('an aborted waiter does not hold up the next', async () => {
  const lock = client.lock(fresh())
  const held = await lock.acquire()
  const controller = new AbortController()
  const first = assert.rejects(lock.acquire({ signal: controller.signal }), { name: 'AbortError' })
  const second = lock.acquire({ wait: 2000 })
  controller.abort()
  await first
  await held.release()
  await (await second).release()
})

test('one signal for many acquires', async () => {
  const controller = new AbortController()
  const warnings = []
  const note = warning => warnings.push(warning)
  process.on('warning', note)
  const name = fresh()
  const held = await other.lock(name).acquire()
  const waits = Array.from({ length: 50 }, () => client.lock(name).acquire({ signal: controller.signal }))
  await sleep(20)
  controller.abort()
  const settled = await Promise.allSettled(waits)
  assert.ok(settled.every(one => one.status === 'rejected' && one.reason === controller.signal.reason))
  await held.release()
  process.off('warning', note)
  assert.deepEqual(warnings, [])
})

test('using gives up too', async () => {
  const lock = client.lock(fresh())
  const held = await other.lock(lock.name).acquire()
  const signal = AbortSignal.timeout(30)
  await assert.rejects(lock.using(() => assert.fail('never'), { signal }), { name: 'TimeoutError' })
  await held.release()
})

test('a signal is a signal', async () => {
  for (const signal of [5, 'x', {}, { aborted: true }]) {
    await assert.rejects(client.lock(fresh()).acquire({ signal }), InvalidOption)
  }
})

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { after, afterEach, beforeEach, test } from 'node:test'

import { Closed, InvalidOption, LockLost, connect } from 'bandog'
import { fresh, redis, sleep } from './redis.mjs'

const { url, call } = await redis()
const client = connect(url, { watchdog: 600 })
const other = connect(url)
after(() => Promise.all([client.close(), other.close()]))

// No test may end with a rejection that nobody handled.
const unhandled = []
const note = error => unhandled.push(error)
beforeEach(() => { process.on('unhandledRejection', note) })
afterEach(async () => {
  await sleep(1)
  process.off('unhandledRejection', note)
  assert.deepEqual(unhandled.splice(0), [])
})

const lose = held => call('DEL', held.name)

test('a lost lock is told to every listener, once', async () => {
  const held = await client.lock(fresh()).acquire()
  const told = []
  const first = new Promise(resolve => held.onLost(error => { told.push(error); resolve() }))
  held.onLost(error => told.push(error))
  await lose(held)
  await first
  await sleep(400)
  assert.equal(told.length, 2)
  assert.ok(told[0] instanceof LockLost)
  assert.deepEqual([told[0].lockName, told[0].owner], [held.name, held.owner])
  assert.deepEqual([held.valid, held.lost], [false, 'taken'])
  await assert.rejects(held.release(), LockLost)
})

test('who comes after the loss is told as well', async () => {
  const held = await client.lock(fresh()).acquire()
  await lose(held)
  await new Promise(resolve => held.onLost(resolve))
  assert.ok(await new Promise(resolve => held.onLost(resolve)) instanceof LockLost)
  assert.equal(held.signal.aborted, false)
  await once(held.signal, 'abort')
  await held.release().catch(() => {})
})

test('a loss aborts the signal with the error as its reason', async () => {
  const held = await client.lock(fresh()).acquire()
  const { signal } = held
  assert.equal(held.signal, signal)
  assert.equal(signal.aborted, false)
  await lose(held)
  await once(signal, 'abort')
  assert.ok(signal.reason instanceof LockLost)
  await held.release().catch(() => {})
})

test('a released lock is not lost', async () => {
  const held = await client.lock(fresh()).acquire()
  held.onLost(() => assert.fail('not lost'))
  const { signal } = held
  await held.release()
  await sleep(300)
  assert.equal(signal.aborted, false)
})

test('F35: listeners that throw or reject are reported once and harm nobody', async () => {
  const held = await client.lock(fresh()).acquire()
  const kept = await client.lock(fresh()).acquire()
  const warnings = []
  const hear = warning => warnings.push(warning)
  process.on('warning', hear)
  held.onLost(() => { throw new Error('thrown by a listener') })
  held.onLost(async () => { throw new Error('rejected by a listener') })
  held.onLost(() => Promise.reject(null))
  const told = new Promise(resolve => held.onLost(resolve))
  await lose(held)
  await told
  await sleep(50)
  process.off('warning', hear)
  assert.deepEqual(warnings.map(warning => warning.name), Array(3).fill('BandogListenerWarning'))
  assert.match(warnings[0].message, /thrown by a listener/)
  await sleep(1000)
  assert.equal(kept.valid, true)
  await kept.release()
  await held.release().catch(() => {})
})

test('a listener may use the library', async () => {
  const lock = client.lock(fresh())
  const held = await lock.acquire()
  const next = new Promise((resolve, reject) => held.onLost(() => lock.acquire({ wait: 1000 }).then(resolve, reject)))
  await lose(held)
  await (await next).release()
})

test('onLost takes a function', async () => {
  const held = await client.lock(fresh()).acquire()
  for (const bad of [undefined, null, 5, {}]) assert.throws(() => held.onLost(bad), InvalidOption)
  await held.release()
})

test('events of one lock, from the call on', async () => {
  const lock = client.lock(fresh())
  const events = lock.events()
  const seen = []
  const listening = (async () => {
    for await (const event of events) {
      seen.push(event)
      if (event.kind === 'released') break
    }
  })()
  const held = await lock.acquire()
  await (await client.lock(fresh()).acquire()).release()
  await sleep(500)
  await held.release()
  await listening
  assert.equal(seen[0].kind, 'acquired')
  assert.ok(seen.every(event => event.name === lock.name))
  assert.ok(seen.some(event => event.kind === 'renewed' && event.remaining > 0 && event.remaining <= 600))
  assert.deepEqual(seen.at(-1), { kind: 'released', name: lock.name, count: 0 })
  assert.deepEqual(await events.next(), { value: undefined, done: true })
  assert.equal(events.dropped, 0)
})

test('events of a client: contended, lost and why', async () => {
  const events = client.events()
  const held = await client.lock(fresh()).acquire()
  await assert.rejects(client.lock(held.name).acquire({ wait: 50 }))
  await lose(held)
  const seen = new Map()
  for await (const event of events) {
    if (event.name === held.name) seen.set(event.kind, event)
    if (event.kind === 'lost') break
  }
  assert.ok(seen.has('acquired'))
  assert.equal(seen.get('lost').why, 'taken')
  await held.release().catch(() => {})
})

test('a body that throws ends the listening and nothing else', async () => {
  const lock = client.lock(fresh())
  const events = lock.events()
  const listening = assert.rejects((async () => {
    for await (const event of events) throw new Error(event.kind)
  })(), /acquired/)
  const held = await lock.acquire()
  await listening
  await held.release()
})

test('return ends the row, with what was queued', async () => {
  const events = client.events()
  for (let round = 0; round < 3; round++) await client.lock(fresh()).using(() => {})
  assert.equal((await events.next()).done, false)
  assert.deepEqual(await events.return(), { value: undefined, done: true })
  for (let round = 0; round < 3; round++) assert.deepEqual(await events.next(), { value: undefined, done: true })
  assert.deepEqual(await events.return(), { value: undefined, done: true })
})

test('close tells who still holds something, before it is released, and ends the row after that', async () => {
  const passing = connect(url)
  const events = passing.events()
  const held = await passing.lock(fresh()).acquire()
  const { signal } = held
  const told = []
  held.onLost(error => told.push(error))
  await passing.close()
  assert.deepEqual([held.valid, held.lost, signal.aborted, told.length], [false, 'closed', true, 1])
  assert.ok(told[0] instanceof LockLost && told[0].lockName === held.name)
  assert.equal(await call('EXISTS', held.name), 0)
  const seen = []
  for await (const { kind, why } of events) seen.push(why ? `${kind} ${why}` : kind)
  assert.ok(seen.includes('acquired') && seen.includes('lost closed'), `${seen}`)
  assert.deepEqual(await events.next(), { value: undefined, done: true })
})

test('return and close end what is awaited', async () => {
  const events = client.events()
  const next = events.next()
  await events.return()
  assert.deepEqual(await next, { value: undefined, done: true })
  const passing = connect(url)
  const all = (async () => { for await (const _ of passing.events()); return 'ended' })()
  await sleep(10)
  await passing.close()
  assert.equal(await all, 'ended')
  assert.throws(() => passing.events(), Closed)
})

test('an operator finds warnings on the process', async () => {
  const name = fresh()
  await call('HSET', name, '285475da-9152-4c83-822a-67ee2f116a79:52', '1')
  const warned = once(process, 'warning')
  assert.equal(await client.lock(name).tryAcquire(), null)
  const [warning] = await warned
  assert.equal(warning.name, 'BandogWarning')
  assert.match(warning.message, /no expiry/)
  assert.ok(warning.message.includes(name))
})

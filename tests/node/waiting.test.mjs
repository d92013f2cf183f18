// L2, L3, L5: how a wait ends, and what it asks of the server until then.
import assert from 'node:assert/strict'
import { after, afterEach, test } from 'node:test'
import { Worker } from 'node:worker_threads'
import { once } from 'node:events'

import { LockTimeout, connect } from 'bandog'
import { block, fresh, redis, sleep, until } from './redis.mjs'
import { asked, median, summary, timed } from './support/figures.mjs'
import { channelOf, freeAs, takeAs } from './support/lease.mjs'
import { proxy } from './support/proxy.mjs'

const { url, port, call } = await redis()
const wire = await proxy(port)
const client = connect(url)
const other = connect(url)
const far = connect(wire.url)
after(async () => {
  await wire.tell('pass')
  await Promise.all([client.close(), other.close(), far.close()])
})
afterEach(() => wire.tell('pass'))

const subscribed = name => until(async () => (await call('PUBSUB', 'NUMSUB', channelOf(name)))[1] > 0)

/** A wait that is parked: subscribed, and its second try answered. */
async function parked(name, of = client, options) {
  await takeAs(call, name, 60_000)
  const waiting = of.lock(name).acquire(options)
  await subscribed(name)
  await sleep(30)
  return { waiting }
}

test('l2: woken by a message, median under 20 ms', async t => {
  const name = fresh()
  const took = []
  let held = await client.lock(name).acquire()
  for (let round = 0; round < 60; round++) {
    const waiting = (round % 2 ? client : other).lock(name).acquire()
    await subscribed(name)
    await sleep(4)
    const began = performance.now()
    held.release()
    held = await waiting
    took.push(performance.now() - began)
  }
  await held.release()
  t.diagnostic(`release to grant: ${summary(took)}`)
  assert.ok(median(took) <= 20)
})

test('l2: two tries and one SUBSCRIBE, then one try a message', async () => {
  const name = fresh()
  await (await client.lock(name).acquire()).release()
  await assert.rejects((await parked(fresh(), client, { wait: 50 })).waiting, LockTimeout)
  await takeAs(call, name, 60_000)
  await call('CONFIG', 'RESETSTAT')
  const waiting = client.lock(name).acquire()
  await subscribed(name)
  await sleep(1200)
  assert.deepEqual(await asked(call), { tries: 2, subscribes: 1, hellos: 0 })
  for (let message = 1; message <= 3; message++) {
    await call('PUBLISH', channelOf(name), '0')
    await until(async () => (await asked(call)).tries >= 2 + message, 1000)
    await sleep(150)
    assert.equal((await asked(call)).tries, 2 + message)
  }
  const before = (await asked(call)).tries
  await call('DEL', name)
  await call('PUBLISH', channelOf(name), '0')
  await (await waiting).release()
  assert.equal((await asked(call)).tries, before + 2)
})

test('l2: a hundred waiters put one contender on the wire, and take turns as they came', async () => {
  const name = fresh()
  const lock = client.lock(name)
  await takeAs(call, name, 60_000)
  await call('CONFIG', 'RESETSTAT')
  const order = []
  const all = Array.from({ length: 100 }, async (_, place) => {
    const held = await lock.acquire()
    order.push(place)
    await held.release()
  })
  await subscribed(name)
  await sleep(300)
  const { tries, subscribes } = await asked(call)
  assert.deepEqual([tries, subscribes], [2, 1])
  await call('DEL', name)
  await call('PUBLISH', channelOf(name), '0')
  await Promise.all(all)
  assert.deepEqual(order, [...order].sort((a, b) => a - b))
  const done = await asked(call)
  assert.ok(done.tries <= 2 + 200 + 100, `${done.tries} requests for a hundred turns`)
})

test('l3: the message is lost: the lock comes with the expiry', async () => {
  const name = fresh()
  await takeAs(call, name, 700)
  const waiting = far.lock(name).acquire()
  await subscribed(name)
  await wire.tell(`mute ${channelOf(name)} 10`)
  const { took } = await timed(waiting)
  assert.ok(took > 400 && took < 900, `${took} ms`)
  await (await waiting).release()
  await wire.tell('pass')

  const deleted = fresh()
  await takeAs(call, deleted, 800)
  const late = far.lock(deleted).acquire()
  await subscribed(deleted)
  await call('DEL', deleted)
  const rest = await timed(late)
  assert.ok(rest.took < 900, `${rest.took} ms`)
  await rest.value.release()
})

test('l3: the subscription dies between release and delivery: looked again after the reconnect', async t => {
  const took = []
  for (let round = 0; round < 3; round++) {
    const name = fresh()
    const { waiting } = await parked(name, far)
    await wire.tell(`mute ${channelOf(name)}`)
    await freeAs(call, name)
    const began = performance.now()
    await call('CLIENT', 'KILL', 'TYPE', 'pubsub')
    await (await waiting).release()
    took.push(performance.now() - began)
    await wire.tell('pass')
    await sleep(1100)
  }
  t.diagnostic(`kill to grant: ${summary(took)}`)
  assert.ok(median(took) < 300)
})

test('l2: a message that overtakes the busy reply is not lost', async t => {
  const warm = fresh()
  const first = await parked(warm, far)
  await freeAs(call, warm)
  await (await first.waiting).release()
  const links = (await wire.state()).open.filter(link => !link.commands.SUBSCRIBE)
  const SLOW = 80
  const took = []
  for (let after = 0; after <= 3 * SLOW; after += 20) {
    const name = fresh()
    await takeAs(call, name, 30_000)
    for (const { id } of links) await wire.tell(`delay down ${SLOW} on ${id}`)
    const waiting = far.lock(name).acquire()
    await sleep(after)
    await freeAs(call, name)
    const { value, took: span } = await timed(waiting)
    took.push(span)
    for (const { id } of links) await wire.tell(`delay down 0 on ${id}`)
    await value.release()
  }
  t.diagnostic(`release to grant with replies ${SLOW} ms late: ${summary(took)}`)
  assert.ok(Math.max(...took) < 3 * SLOW + 150, 'not by the expiry')
})

test('l3: another holder\'s long lease is never shortened, and looked at once a lease of ours', async () => {
  const name = fresh()
  const quick = connect(url, { watchdog: 400 })
  await takeAs(call, name, 3_600_000)
  await call('CONFIG', 'RESETSTAT')
  await assert.rejects(quick.lock(name).acquire({ wait: 2000 }), LockTimeout)
  const { tries } = await asked(call)
  assert.ok(tries >= 4 && tries <= 2 + 5, `${tries} tries in 5 leases`)
  assert.ok(await call('PTTL', name) > 3_590_000)
  await quick.close()
})

test('l5: a wait is total: median within 50 ms', async t => {
  const name = fresh()
  await takeAs(call, name, 60_000)
  for (const wait of [0, 20, 100, 400]) {
    const over = []
    for (let round = 0; round < 3; round++) {
      const { error, took } = await timed(client.lock(name).acquire({ wait }))
      assert.ok(error instanceof LockTimeout, String(error))
      over.push(took - wait)
    }
    t.diagnostic(`wait ${wait}: over by ${summary(over)}`)
    assert.ok(Math.min(...over) > -3, 'not before its time')
    assert.ok(median(over) <= 50)
  }
  assert.equal(await call('EXISTS', name), 1)
})

test('wait 0 may pass the queue, and never waits', async () => {
  const name = fresh()
  const { waiting } = await parked(name)
  const { value, took } = await timed(client.lock(name).tryAcquire())
  assert.equal(value, null)
  assert.ok(took < 100)
  await freeAs(call, name)
  await (await waiting).release()
})

test('f23: a flood of forged messages costs few tries and gives no grant', async () => {
  const name = fresh()
  const { waiting } = await parked(name)
  await call('CONFIG', 'RESETSTAT')
  const end = performance.now() + 1000
  let sent = 0
  while (performance.now() < end) {
    await Promise.all(Array.from({ length: 200 }, (_, n) => call('PUBLISH', channelOf(name), ['0', '1', 'junk', '\0', '-9'][n % 5])))
    sent += 200
  }
  await sleep(100)
  const { tries } = await asked(call)
  assert.ok(tries <= 2 * 10 + 5, `${tries} tries for ${sent} messages`)
  assert.ok(tries >= 1)
  await freeAs(call, name)
  const { value, took } = await timed(waiting)
  assert.ok(took < 300, `${took} ms`)
  await value.release()
})

test('a grant to a loop that does not run is given back, and the wait goes on', async () => {
  const name = fresh()
  const worker = new Worker(`
    const { parentPort, workerData } = require('node:worker_threads')
    const client = require('bandog').connect(workerData.url, { watchdog: 900 })
    const lock = client.lock(workerData.name)
    ;(async () => {
      const held = await lock.acquire()
      parentPort.postMessage('held')
      await new Promise(resolve => parentPort.once('message', resolve))
      await held.release()
      await new Promise(resolve => setTimeout(resolve, 50))
      const began = performance.now()
      const again = await lock.acquire({ wait: 5000 })
      const took = performance.now() - began
      await again.release()
      await client.close()
      parentPort.postMessage(took)
    })()`, { eval: true, workerData: { url, name } })
  await once(worker, 'message')
  const quick = connect(url, { watchdog: 900 })
  const waiting = quick.lock(name).acquire()
  await subscribed(name)
  await sleep(30)
  worker.postMessage('go')
  block(1500)
  const [took] = await once(worker, 'message')
  assert.ok(took < 700, `the other got it after ${took} ms, in spite of a loop blocked for 1500`)
  const held = await waiting
  assert.equal(held.valid, true)
  assert.ok(held.remaining() > 400)
  assert.equal(await call('HGET', name, held.owner), '1')
  await held.release()
  await quick.close()
})

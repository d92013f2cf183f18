// What a cycle asks of the server, and what must hold when it does not answer. More: wire-faults, server-faults.
import assert from 'node:assert/strict'
import { after, afterEach, test } from 'node:test'

import { LockTimeout, Unreachable, connect } from 'bandog'
import { fresh, redis, sleep, until } from './redis.mjs'
import { asked, median, summary, timed } from './support/figures.mjs'
import { proxy } from './support/proxy.mjs'

const { url, port, call, server } = await redis()
const wire = await proxy(port)
const direct = connect(url, { watchdog: 2000 })
after(async () => {
  await wire.tell('pass')
  await direct.close()
})
afterEach(() => wire.tell('pass'))

const through = (t, options) => {
  const client = connect(wire.url, { watchdog: 900, opTimeout: 400, connectTimeout: 400, ...options })
  t.after(() => client.close())
  return client
}

test('two requests for a cycle', async () => {
  const name = fresh()
  const connections = async () => (await call('CLIENT', 'LIST')).trim().split('\n').length
  const before = await connections()
  const first = await direct.lock(name).acquire()
  // The keeper's own connection is opened behind the first grant, which does not wait for it.
  await until(async () => await connections() === before + 2)
  await first.release()
  await call('CONFIG', 'RESETSTAT')
  for (let round = 0; round < 50; round++) await (await direct.lock(name).acquire({ lease: 60_000 })).release()
  assert.deepEqual(await asked(call), { tries: 100, subscribes: 0, hellos: 0 })
})

test('F33: an abort while the reply is swallowed leaves no orphan', async t => {
  const client = through(t)
  await (await client.lock(fresh()).acquire()).release()
  const lock = client.lock(fresh())
  const controller = new AbortController()
  await wire.tell('lose EVALSHA silent')
  const promise = lock.acquire({ signal: controller.signal })
  await until(() => call('EXISTS', lock.name))
  controller.abort()
  await assert.rejects(promise, { name: 'AbortError' })
  await wire.tell('pass')
  await until(async () => !(await call('EXISTS', lock.name)), 3000)
})

test('L5: a wait is total, also when nobody answers', async t => {
  const client = through(t, { opTimeout: 5000, connectTimeout: 5000 })
  await (await client.lock(fresh()).acquire()).release()
  await wire.tell('stall both')
  const took = []
  for (let round = 0; round < 7; round++) {
    const { error, took: span } = await timed(client.lock(fresh()).acquire({ wait: 200 }))
    assert.ok(error instanceof Unreachable || error instanceof LockTimeout, String(error))
    took.push(span)
  }
  t.diagnostic(summary(took))
  assert.ok(Math.min(...took) >= 190 && median(took) < 250 && Math.max(...took) < 1500, summary(took))
  await wire.tell('resume')
})

test('a server that stops and goes on', { skip: server === undefined }, async () => {
  const held = await direct.lock(fresh()).acquire()
  server.kill('SIGSTOP')
  const late = direct.lock(fresh()).acquire()
  await sleep(500)
  server.kill('SIGCONT')
  await (await late).release()
  assert.equal(held.valid, true)
  await held.release()
})

// What carries the bytes: one test for each thing that only the transport decides. All the others run over both.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, openSync } from 'node:fs'
import { after, test } from 'node:test'
import { Worker } from 'node:worker_threads'

import { Unreachable, connect, transport } from 'bandog'
import { block, fresh, freePort, redis, sleep, until } from './redis.mjs'
import { relay } from './support/relay.mjs'

const { url, port, call } = await redis()
const client = connect(url)
after(() => client.close())

/** Runs a module with this transport asked for; what it printed, and how it ended. */
async function run(asked, body) {
  const { BANDOG_TRANSPORT: _, ...env } = process.env
  if (asked !== undefined) env.BANDOG_TRANSPORT = asked
  const child = spawn(process.execPath, ['--input-type=module', '-e', body, url, fresh()], {
    cwd: import.meta.dirname, env, stdio: ['ignore', 'pipe', 'pipe'],
  })
  let [out, err] = ['', '']
  child.stdout.on('data', chunk => { out += chunk })
  child.stderr.on('data', chunk => { err += chunk })
  const [code] = await once(child, 'close')
  return { code, out: out.trim(), err }
}

// By require: node 20 ends a program whose import fails in a CommonJS module, whoever catches it.
const say = `
  import { createRequire } from 'node:module'
  try {
    console.log(createRequire(process.cwd() + '/')('bandog').transport)
  } catch (error) {
    console.log(error.name, error.code)
  }`

test('uv where node is, unless the environment says otherwise', async () => {
  for (const [asked, expected] of [[undefined, 'uv'], ['', 'uv'], ['uv', 'uv'], ['socket', 'socket']]) {
    assert.deepEqual(await run(asked, say), { code: 0, out: expected, err: '' })
  }
  assert.equal(transport, process.env.BANDOG_TRANSPORT || 'uv')
})

test('what the environment cannot mean is refused when the library is loaded', async () => {
  for (const asked of ['UV', 'sockets', '0']) {
    assert.deepEqual(await run(asked, say), { code: 0, out: 'InvalidOption invalid_option', err: '' })
  }
})

test('a process with an open idle client ends by itself, and with calls under way only after them', async () => {
  const body = `
    import { connect } from 'bandog'
    const [url, name] = process.argv.slice(1)
    const lock = connect(url).lock(name)
    await (await lock.acquire()).release()
    console.log('idle')
    lock.acquire().then(held => held.release()).then(() => console.log('again'))`
  for (const asked of ['uv', 'socket']) {
    assert.deepEqual(await run(asked, body), { code: 0, out: 'idle\nagain', err: '' }, asked)
  }
})

test('nothing that a client only tries keeps a process alive', async () => {
  // A name that nobody answers for: its looking up may last, and the process must not.
  const body = `
    import { connect } from 'bandog'
    const lock = connect('redis://127.0.0.1:1', { connectTimeout: 500 }).lock('a')
    await lock.acquire({ wait: 20 }).catch(error => console.log(error.code))`
  for (const asked of ['uv', 'socket']) {
    const began = performance.now()
    const { code, out, err } = await run(asked, body)
    assert.deepEqual([code, err], [0, ''], asked)
    assert.match(out, /unreachable|timeout/)
    assert.ok(performance.now() - began < 2000)
  }
})

test('two environments of one process, each with its own transport', async () => {
  const source = `
    const { parentPort, workerData } = require('node:worker_threads')
    const { connect, transport } = require('bandog')
    ;(async () => {
      const client = connect(workerData.url)
      for (let n = 0; n < 50; n++) await (await client.lock(workerData.name).acquire()).release()
      await client.close()
      parentPort.postMessage(transport)
    })()`
  const name = fresh()
  const told = await Promise.all(['uv', 'socket', 'uv', 'socket'].map(async asked => {
    const thread = new Worker(source, { eval: true, workerData: { url, name }, env: { ...process.env, BANDOG_TRANSPORT: asked } })
    const [[said]] = await Promise.all([once(thread, 'message'), once(thread, 'exit')])
    return said
  }))
  assert.deepEqual(told, ['uv', 'socket', 'uv', 'socket'])
})

test('f34: a worker is terminated while very many calls are under way', async () => {
  for (let round = 0; round < 12; round++) {
    const prefix = fresh()
    const thread = new Worker(`
      const { parentPort, workerData } = require('node:worker_threads')
      const client = require('bandog').connect(workerData.url, { watchdog: 900 })
      const busy = async lock => { for (;;) await (await lock.acquire()).release() }
      for (let n = 0; n < 200; n++) busy(client.lock(workerData.prefix + ':' + n))
      parentPort.postMessage('up')`, { eval: true, workerData: { url, prefix } })
    await once(thread, 'message')
    await sleep(round * 2)
    await thread.terminate()
    await until(async () => (await call('KEYS', `${prefix}:*`)).length === 0, 1500)
  }
})

test('l8: an event loop that is blocked with its grant unread: on uv others have the lock all the same', async () => {
  const own = connect(url)
  // The connection is there before.
  await (await own.lock(fresh()).acquire()).release()
  const name = fresh()
  const other = new Worker(`
    const { parentPort, workerData } = require('node:worker_threads')
    const lock = require('bandog').connect(workerData.url).lock(workerData.name)
    ;(async () => {
      parentPort.postMessage('up')
      while (!await lock.locked());
      const began = performance.now()
      const held = await lock.acquire()
      parentPort.postMessage(performance.now() - began)
      await held.release()
    })()`, { eval: true, workerData: { url, name } })
  await once(other, 'message')
  const [waited, ended] = [once(other, 'message'), once(other, 'exit')]
  const done = own.lock(name).acquire().then(held => {
    const { valid } = held
    return held.release().then(() => valid)
  })
  // The request is out: this turn has ended once.
  await new Promise(setImmediate)
  block(2500)
  assert.equal(await done, true)
  const [took] = await waited
  // The driver looks after 50 ms, and keeps a grant that nobody claims for a second. With a socket of JS nobody but
  // the loop can look.
  assert.ok(took < (transport === 'uv' ? 1500 : 3500), `${took} ms`)
  await ended
  await own.close()
})

test('a thousand wishes of one turn go out in few writes and are settled in few turns', async () => {
  const hop = await relay(port)
  const through = connect(`redis://127.0.0.1:${hop.port}`)
  await (await through.lock(fresh()).acquire()).release()
  const locks = Array.from({ length: 1000 }, () => through.lock(fresh()))
  const pieces = async phase => {
    const before = await hop.count()
    let turn = 0
    const turns = new Set()
    const clock = setInterval(() => { turn++ }, 0)
    const result = await Promise.all(phase().map(promise => promise.then(value => { turns.add(turn); return value })))
    clearInterval(clock)
    const { up } = await hop.count()
    assert.ok(turns.size <= 50, `${turns.size} turns`)
    return [up - before.up, result]
  }
  const [acquiring, holds] = await pieces(() => locks.map(lock => lock.acquire()))
  const [releasing] = await pieces(() => holds.map(held => held.release()))
  // A quarter of a megabyte, in pieces of what one read of the relay takes.
  assert.ok(acquiring <= 30 && releasing <= 30, `${acquiring} and ${releasing} pieces`)
  await through.close()
  await hop.stop()
})

test('a connection that is killed while it is watched, its descriptor taken by a file at once', async () => {
  const own = connect(url)
  const files = []
  for (let round = 0; round < 20; round++) {
    await (await own.lock(fresh()).acquire()).release()
    const busy = round % 2 ? Array.from({ length: 20 }, async () => (await own.lock(fresh()).acquire()).release()) : []
    await call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes')
    for (let n = 0; n < 4; n++) files.push(openSync('/dev/null'))
    await Promise.all(busy)
    await (await own.lock(fresh()).acquire()).release()
  }
  files.forEach(closeSync)
  await own.close()
})

test('what does not belong to the library survives it: errors of other ticks, contexts of callers', async () => {
  const body = `
    import { AsyncLocalStorage } from 'node:async_hooks'
    import { connect } from 'bandog'
    const [url, name] = process.argv.slice(1)
    const lock = connect(url).lock(name)
    process.on('uncaughtException', error => console.log(error.message))
    const context = new AsyncLocalStorage()
    const seen = await context.run('mine', async () => {
      const held = await lock.acquire()
      // In the very turn that brought the answer.
      process.nextTick(() => { throw new Error('of a tick') })
      queueMicrotask(() => { throw new Error('of a job') })
      setImmediate(() => { throw new Error('of the next turn') })
      await held.release()
      return context.getStore()
    })
    await (await lock.acquire()).release()
    console.log(seen)`
  assert.deepEqual(await run(transport, body), { code: 0, out: 'of a job\nof a tick\nof the next turn\nmine', err: '' })
})

test('a server that is away is named the same way over both', async () => {
  const away = connect(`redis://127.0.0.1:${await freePort()}`, { unreachableAfter: 100 })
  await assert.rejects(away.lock(fresh()).acquire({ wait: 0 }), error => {
    assert.ok(error instanceof Unreachable)
    assert.match(error.message, /Connection refused \(os error \d+\)/)
    return true
  })
  await away.close()
  const nobody = connect('redis://nobody.invalid:6379')
  await assert.rejects(nobody.lock(fresh()).acquire({ wait: 0 }), Unreachable)
  await nobody.close()
})

// R2, F30, F34: threads and processes that end in the middle of something, beside others that must not notice.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { after, test } from 'node:test'
import { Worker } from 'node:worker_threads'

import { connect } from 'bandog'
import { fresh, redis, sleep, until } from './redis.mjs'

const { url, call } = await redis()
const client = connect(url, { watchdog: 900 })
after(() => client.close())

const LEASE = 900
const source = body => `
  const { parentPort, workerData } = require('node:worker_threads')
  const { connect } = require('bandog')
  const client = connect(workerData.url, { watchdog: ${LEASE} })
  const lock = client.lock(workerData.name)
  const up = () => parentPort.postMessage('up')
  ;(async () => { ${body} })()`
const worker = (body, data = {}) => new Worker(source(body), { eval: true, workerData: { url, ...data } })
const gone = (name, within = LEASE + 300) => until(async () => !(await call('EXISTS', name)), within)

/** A lock and a wait of the main thread that must go on as if nothing happened. */
async function bystander() {
  const held = await client.lock(fresh()).acquire()
  held.onLost(() => assert.fail('the main thread lost its lock'))
  const busy = await client.lock(fresh()).acquire()
  const waiting = client.lock(busy.name).acquire()
  return async () => {
    assert.equal(held.valid, true)
    await held.release()
    await busy.release()
    await (await waiting).release()
  }
}

test('f34: terminated while waiting: leaves nothing, the next in line is woken', async () => {
  const check = await bystander()
  const name = fresh()
  const held = await client.lock(name).acquire()
  const threads = Array.from({ length: 4 }, () => worker('up(); await lock.acquire()', { name }))
  await Promise.all(threads.map(thread => once(thread, 'message')))
  const waiting = client.lock(name).acquire()
  await sleep(50)
  await Promise.all(threads.map(thread => thread.terminate()))
  await held.release()
  const next = await waiting
  assert.equal(await call('HGET', name, next.owner), '1')
  await next.release()
  await sleep(50)
  assert.equal(await call('EXISTS', name), 0)
  await check()
})

test('f34: terminated at any instant of a busy life, thirty times', async () => {
  const check = await bystander()
  const name = fresh()
  for (let batch = 0; batch < 6; batch++) {
    await Promise.all(Array.from({ length: 5 }, async (_, lane) => {
      const thread = worker(`
        up()
        for (let n = 0; ; n++) {
          const controller = new AbortController()
          const events = client.events()
          const held = await lock.acquire({ signal: controller.signal })
          held.onLost(() => {})
          const inner = await held.reenter()
          events.next()
          client.lock(workerData.name).tryAcquire({ wait: 5 })
          await inner.release()
          await held.release()
          await events.return()
        }`, { name })
      await once(thread, 'message')
      await sleep(lane * 7 + batch * 3)
      await thread.terminate()
    }))
  }
  await gone(name)
  await check()
})

test('f34: a worker that throws, rejects or exits while holding', async () => {
  const check = await bystander()
  for (const end of ["throw new Error('on purpose')", "Promise.reject(new Error('on purpose')); await new Promise(() => {})", 'process.exit(5)']) {
    const name = fresh()
    const thread = worker(`globalThis.held = await lock.acquire(); up(); await new Promise(setImmediate); ${end}`, { name })
    const errors = []
    thread.on('error', error => errors.push(error.message))
    const code = await new Promise(resolve => thread.on('exit', resolve))
    assert.ok(code === 1 || code === 5, `${code}`)
    assert.deepEqual(errors, code === 1 ? ['on purpose'] : [])
    await gone(name)
  }
  await check()
})

test('f34: a worker whose server is away ends all the same', async () => {
  const thread = new Worker(`
    const { parentPort } = require('node:worker_threads')
    const client = require('bandog').connect('redis://127.0.0.1:1', { connectTimeout: 20_000 })
    client.lock('a').acquire().catch(() => {})
    parentPort.postMessage('up')
    setInterval(() => {}, 1000)`, { eval: true })
  await once(thread, 'message')
  const began = performance.now()
  await thread.terminate()
  assert.ok(performance.now() - began < 1000)
})

test('l8: the loop of one worker is blocked, the locks of all are kept', async () => {
  const names = [fresh(), fresh()]
  const threads = names.map((name, at) => worker(`
    const held = await lock.acquire()
    up()
    const end = performance.now() + ${4 * LEASE}
    while (performance.now() < end) { if (${at}) await new Promise(setImmediate) }
    parentPort.postMessage([held.valid, held.lost])
    await held.release()
    await client.close()`, { name }))
  const ended = Promise.all(threads.map(thread => once(thread, 'exit')))
  await Promise.all(threads.map(thread => once(thread, 'message')))
  const verdicts = await Promise.all(threads.map(thread => once(thread, 'message')))
  assert.deepEqual(verdicts.map(([verdict]) => verdict), [[true, null], [true, null]])
  await ended
  assert.equal(await call('EXISTS', ...names), 0)
})

test('each thread is a client of its own', async () => {
  const name = fresh()
  const threads = [1, 2].map(() => worker(`
    const held = await client.lock(workerData.name + Math.random()).acquire()
    parentPort.postMessage(held.owner)
    await held.release()
    await client.close()`, { name }))
  const ended = Promise.all(threads.map(thread => once(thread, 'exit')))
  const owners = await Promise.all(threads.map(async thread => (await once(thread, 'message'))[0].split(':')[0]))
  await ended
  assert.equal(new Set(owners).size, 2)
})

test('a hold does not travel to another thread', async () => {
  const held = await client.lock(fresh()).acquire()
  const thread = new Worker("require('node:worker_threads').parentPort.once('message', value => { process.exit(typeof value.release === 'function' ? 9 : 0) })", { eval: true })
  await once(thread, 'online')
  let copied = false
  try {
    thread.postMessage(held)
    copied = true
  } catch {
    await thread.terminate()
  }
  if (copied) assert.deepEqual(await once(thread, 'exit'), [0], 'a copy can release nothing')
  assert.equal(held.valid, true)
  await held.release()
})

const program = `
  import { connect } from 'bandog'
  const [url, name] = process.argv.slice(1)
  const client = connect(url, { watchdog: ${LEASE} })
  const lock = client.lock(name)
`
function run(body, name) {
  const child = spawn(process.execPath, ['--input-type=module', '-e', program + body, url, name], {
    cwd: import.meta.dirname, stdio: ['ignore', 'pipe', 'pipe'],
  })
  let err = ''
  child.stderr.on('data', chunk => { err += chunk })
  const ready = once(child.stdout, 'data')
  return { child, ready, done: once(child, 'close').then(([code, signal]) => ({ code, signal, err })) }
}

test('f30: every ugly end while holding or waiting: free by the lease, no abort, no hang', async () => {
  const ends = {
    'process.abort()': [null, 'SIGABRT'],
    "process.kill(process.pid, 'SIGKILL')": [null, 'SIGKILL'],
    "process.kill(process.pid, 'SIGTERM')": [null, 'SIGTERM'],
    'process.reallyExit(4)': [4, null],
    'process.exit(4)': [4, null],
    "Promise.reject(new Error('nobody cares'))": [1, null],
    "queueMicrotask(() => { throw new Error('uncaught') })": [1, null],
    'process.exitCode = 4; process.disconnect?.(); client.close()': [4, null],
  }
  await Promise.all(Object.entries(ends).flatMap(([end, expected]) => ['', 'lock.acquire().catch(() => {});'].map(async waiting => {
    const name = fresh()
    const { ready, done } = run(`globalThis.held = await lock.acquire(); held.onLost(() => {}); ${waiting} console.log('up'); await new Promise(resolve => setTimeout(resolve, 30)); ${end}; await new Promise(resolve => setTimeout(resolve, 100))`, name)
    await ready
    const began = performance.now()
    const { code, signal, err } = await done
    assert.deepEqual([code, signal], expected, `${end}: ${err}`)
    assert.doesNotMatch(err, /panic|FATAL|napi_/i)
    assert.ok(performance.now() - began < 4000, end)
    await gone(name)
  })))
})

test('r2: exit with the server away does not hang', async () => {
  const name = fresh()
  for (const end of ['', 'process.exit(0)']) {
    const child = spawn(process.execPath, ['--input-type=module', '-e', `
      import { connect } from 'bandog'
      import net from 'node:net'
      const [port, name] = process.argv.slice(1)
      const sockets = []
      const relay = net.createServer(socket => { const server = net.connect(port); sockets.push(socket, server); socket.on('error', () => {}); server.on('error', () => {}); socket.pipe(server).pipe(socket) }).listen(0)
      await new Promise(resolve => relay.on('listening', resolve))
      const client = connect('redis://127.0.0.1:' + relay.address().port, { watchdog: 800 })
      globalThis.held = await client.lock(name).acquire()
      relay.close()
      for (const socket of sockets) { socket.unpipe(); socket.pause(); socket.unref() }
      console.log('up')
      ${end}`, new URL(url).port, name], { cwd: import.meta.dirname, stdio: ['ignore', 'pipe', 'pipe'] })
    await once(child.stdout, 'data')
    const began = performance.now()
    const [code, signal] = await once(child, 'close')
    assert.deepEqual([code, signal], [0, null])
    assert.ok(performance.now() - began < 1500, `${performance.now() - began} ms`)
    await gone(name)
  }
})

test('a child process is another owner and leaves its parent alone', async () => {
  const name = fresh()
  const held = await client.lock(name).acquire()
  const child = spawn(process.execPath, ['-e', `
    const client = require('bandog').connect('${url}', { watchdog: ${LEASE} })
    ;(async () => {
      const lock = client.lock('${name}')
      process.send(await lock.tryAcquire() === null)
      await lock.acquire()
      process.send('got it')
      setInterval(() => {}, 1000)
    })()`], { cwd: import.meta.dirname, stdio: ['ignore', 'inherit', 'inherit', 'ipc'] })
  assert.deepEqual((await once(child, 'message'))[0], true)
  const got = once(child, 'message')
  await held.release()
  assert.equal((await got)[0], 'got it')
  child.kill('SIGKILL')
  await (await client.lock(name).acquire({ wait: 2 * LEASE })).release()
})

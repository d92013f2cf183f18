// R2, F30, F34: processes and workers that end in every way, with the library in the middle of something.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { after, test } from 'node:test'
import { Worker } from 'node:worker_threads'

import { connect } from 'bandog'
import { fresh, redis, sleep, until } from './redis.mjs'

const { url, call } = await redis()
const client = connect(url)
after(() => client.close())

/** Runs a module in a process of its own; `ready` is its first line of output. */
function run(body, ...flags) {
  const name = fresh()
  const source = `
    import { connect, lock } from 'bandog'
    const client = connect(${JSON.stringify(url)}, { watchdog: 2000 })
    const target = client.lock(${JSON.stringify(name)})
    ${body}`
  const child = spawn(process.execPath, [...flags, '--input-type=module', '-e', source], {
    cwd: import.meta.dirname, stdio: ['ignore', 'pipe', 'pipe'],
  })
  let [out, err] = ['', '']
  child.stdout.on('data', chunk => { out += chunk })
  child.stderr.on('data', chunk => { err += chunk })
  const ready = once(child.stdout, 'data')
  const done = once(child, 'close').then(([code, signal]) => ({ code, signal, out, err }))
  return { child, name, ready, done }
}

async function ends(body, expected = 0) {
  const { name, ready, done } = run(`${body}\nconsole.log('last line')`)
  await ready
  const began = performance.now()
  const { code, signal, err } = await done
  assert.deepEqual([code, signal, err], [expected, null, ''])
  const took = performance.now() - began
  assert.ok(took < 2000, `${took} ms`)
  return { name, took }
}

test('a process with an unused client ends by itself', () => ends(''))

test('a process with an open idle client ends by itself', () => ends('await (await target.acquire()).release()'))

test('a process whose client is closed ends at once', async () => {
  const { took } = await ends('await (await target.acquire()).release(); await client.close()')
  assert.ok(took < 300, `${took} ms`)
})

test('a process with a held lock ends by itself and releases it', async () => {
  const { name } = await ends('globalThis.held = await target.acquire(); held.onLost(() => {}); held.signal')
  assert.equal(await call('EXISTS', name), 0)
})

test('process.exit while holding releases', async () => {
  const { name } = await ends(`globalThis.held = await target.acquire(); setTimeout(() => process.exit(0), 10)`)
  assert.equal(await call('EXISTS', name), 0)
})

test('a listener that awaits nothing keeps nobody alive, an awaited event does', async () => {
  await ends('client.events()')
  const { child, ready, done } = run(`console.log('up'); await client.events().next(); console.log('event')`)
  await ready
  await sleep(300)
  assert.equal(child.exitCode, null)
  child.kill('SIGTERM')
  assert.equal((await done).signal, 'SIGTERM')
})

test('an uncaught error while holding ends the process with it, and releases', async () => {
  const { name, done } = run(`await target.acquire(); console.log('up'); throw new Error('uncaught on purpose')`)
  const { code, err } = await done
  assert.equal(code, 1)
  assert.match(err, /uncaught on purpose/)
  assert.equal(await call('EXISTS', name), 0)
})

test('a process that waits stays alive, and goes when it is told to', async () => {
  const { child, name, ready, done } = run(`
    process.on('SIGTERM', () => process.exit(3))
    console.log('up')
    const held = await target.acquire()
    await held.release()
    console.log('got it')`)
  const held = await client.lock(name).acquire()
  await ready
  await sleep(300)
  assert.equal(child.exitCode, null)
  await held.release()
  const { code, out } = await done
  assert.equal(code, 0)
  assert.match(out, /got it/)
})

test('SIGTERM with a handler that exits, while waiting and while holding', async () => {
  for (const wait of [true, false]) {
    const { child, name, ready, done } = run(`
      process.on('SIGTERM', () => process.exit(3))
      const other = client.lock(${JSON.stringify('x')} + target.name)
      await other.acquire()
      console.log('up')
      ${wait ? 'await other.acquire()' : 'setInterval(() => {}, 1000)'}`)
    await ready
    await sleep(50)
    child.kill('SIGTERM')
    const { code, err } = await done
    assert.deepEqual([code, err], [3, ''])
    assert.equal(await call('EXISTS', `x${name}`), 0)
  }
})

test('SIGKILL while holding: free when the lease ends', async () => {
  const { child, name, ready, done } = run(`await target.acquire(); console.log('up'); setInterval(() => {}, 1000)`)
  await ready
  child.kill('SIGKILL')
  await done
  const began = performance.now()
  await (await client.lock(name).acquire()).release()
  const took = performance.now() - began
  assert.ok(took < 2300, `${took} ms`)
})

test('L9: a handle that nobody keeps does not lose the lock', async () => {
  const { name, done } = run(`
    await target.acquire()
    for (let round = 0; round < 30; round++) { gc(); await new Promise(resolve => setTimeout(resolve, 100)) }
    console.log(await target.locked())`, '--expose-gc')
  const { out, err } = await done
  assert.deepEqual([out, err], ['true\n', ''])
  assert.equal(await call('EXISTS', name), 0)
})

const worker = (body, name) => new Worker(`
  const { parentPort, workerData } = require('node:worker_threads')
  const { connect } = require('bandog')
  const client = connect(workerData.url, { watchdog: 1000 })
  const target = client.lock(workerData.name)
  ;(async () => { ${body} })()`, { eval: true, workerData: { url, name } })

test('F34: workers terminated while holding, waiting, releasing and listening', async () => {
  const bodies = [
    'await target.acquire(); parentPort.postMessage(1); setInterval(() => {}, 1000)',
    'await target.acquire(); parentPort.postMessage(1); await target.acquire()',
    'const held = await target.acquire(); held.onLost(() => {}); parentPort.postMessage(1); await held.release(); setInterval(() => {}, 1000)',
    'const held = await target.acquire(); parentPort.postMessage(1); for await (const event of client.events());',
    'await target.acquire(); parentPort.postMessage(1); for (;;);',
    'parentPort.postMessage(1); for (let n = 0; ; n++) await (await target.acquire()).release()',
  ]
  const mine = await client.lock(fresh()).acquire()
  for (let round = 0; round < 3; round++) {
    await Promise.all(bodies.map(async body => {
      const name = fresh()
      const thread = worker(body, name)
      await once(thread, 'message')
      await sleep(round * 3)
      await thread.terminate()
      await until(async () => !(await call('EXISTS', name)), 3000)
    }))
  }
  assert.equal(mine.valid, true)
  await mine.release()
})

test('a worker that ends by itself releases, and two workers exclude each other', async () => {
  const name = fresh()
  const body = `
    for (let n = 0; n < 20; n++) await target.using(async () => {
      const inside = new Int32Array(workerData.shared)
      if (Atomics.add(inside, 0, 1) !== 0) throw new Error('two inside')
      await null
      Atomics.sub(inside, 0, 1)
    })
    await target.acquire()
    await client.lock(workerData.name + ':last').acquire()`
  const shared = new SharedArrayBuffer(4)
  const threads = [1, 2].map(() => new Worker(`
    const { workerData } = require('node:worker_threads')
    const { connect } = require('bandog')
    const client = connect(workerData.url, { watchdog: 1000 })
    const target = client.lock(workerData.name)
    ;(async () => { ${body} })()`, { eval: true, workerData: { url, name, shared } }))
  const codes = await Promise.all(threads.map(async thread => (await once(thread, 'exit'))[0]))
  assert.deepEqual(codes, [0, 0])
  assert.equal(await call('EXISTS', name, `${name}:last`), 0)
})

test('F34: an addon that only workers load survives them', async () => {
  const source = `
    const { Worker } = require('node:worker_threads')
    const { once } = require('node:events')
    const body = ${JSON.stringify(`
      const { parentPort } = require('node:worker_threads')
      const client = require('bandog').connect('${url}', { watchdog: 500 })
      ;(async () => {
        const held = await client.lock('only:' + Math.random()).acquire()
        held.onLost(() => {})
        parentPort.postMessage(1)
        client.close()
        for (let n = 0; ; n++) await (await client.lock('n' + n).acquire().catch(() => client.lock('m').acquire())).release()
      })().catch(() => {})`)}
    ;(async () => {
      for (let round = 0; round < 10; round++) {
        const thread = new Worker(body, { eval: true })
        await once(thread, 'message')
        await thread.terminate()
      }
      console.log('alive')
    })()`
  const child = spawn(process.execPath, ['-e', source], { cwd: import.meta.dirname, stdio: ['ignore', 'pipe', 'pipe'] })
  let text = ''
  for (const stream of [child.stdout, child.stderr]) stream.on('data', chunk => { text += chunk })
  const [code, signal] = await once(child, 'close')
  assert.deepEqual([code, signal, text], [0, null, 'alive\n'])
})

test('R1: a closed client leaves nothing behind', async () => {
  const count = async () => (await call('CLIENT', 'LIST')).trim().split('\n').length
  const { readdirSync } = await import('node:fs')
  const look = async () => [
    readdirSync('/proc/self/fd').length, readdirSync('/proc/self/task').length, process.getActiveResourcesInfo().length,
    await count(),
  ]
  const pass = async () => {
    const passing = connect(url)
    const held = await passing.lock(fresh()).acquire()
    const waiting = passing.lock(held.name).acquire()
    await sleep(20)
    await held.release()
    await (await waiting).release()
    await passing.close()
  }
  const { setFlagsFromString } = await import('node:v8')
  setFlagsFromString('--expose-gc')
  const gc = (await import('node:vm')).runInNewContext('gc')
  // The descriptor of the keeper's clock goes with the last object of its client.
  const settle = async () => { gc(); await sleep(20); return look() }
  for (let round = 0; round < 3; round++) await pass()
  await settle()
  const before = await settle()
  for (let round = 0; round < 5; round++) await pass()
  await until(async () => String(await settle()) === String(before), 2000).catch(async () => {
    assert.deepEqual(await settle(), before)
  })
})

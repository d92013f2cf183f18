// Bad urls, servers that are not there, servers that are none: a typed error in time that says what to do. A server that
// goes away is waited for.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import net from 'node:net'
import { inspect } from 'node:util'
import { after, afterEach, test } from 'node:test'

import { Closed, InvalidUrl, LockError, LockTimeout, Protocol, Unreachable, connect } from 'bandog'
import { fresh, redis, sleep, until } from './redis.mjs'
import { median, summary, timed } from './support/figures.mjs'
import { freeAs, takeAs } from './support/lease.mjs'
import { proxy } from './support/proxy.mjs'

const { url, port, call } = await redis()
const wire = await proxy(port)
afterEach(() => wire.tell('pass'))

const MARKER = 'marker-77ab-secret'
const quick = { connectTimeout: 400, opTimeout: 400 }

/** A server that says `answer` to whatever comes. `null`: nothing. */
async function liar(answer) {
  const sockets = new Set()
  const server = net.createServer(socket => {
    sockets.add(socket)
    socket.on('error', () => {})
    socket.once('data', () => { if (answer !== null) socket.write(answer) })
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  after(() => { server.close(); for (const socket of sockets) socket.destroy() })
  return server.address().port
}

async function refused(target, options, wish = client => client.lock('a').acquire({ wait: 0 })) {
  const client = connect(target, options)
  const { error, value, took } = await timed(wish(client))
  assert.equal(value, undefined)
  assert.ok(error instanceof LockError, inspect(error))
  for (const text of [String(error), error.stack, JSON.stringify(error), inspect(error), inspect(client)]) assert.doesNotMatch(text, /marker-77ab/)
  await client.close()
  return { error, took }
}

test('a bad url is refused at once, without being quoted', () => {
  for (const bad of [
    '', ' ', 'nonsense', '127.0.0.1:6379', `http://u:${MARKER}@x`, `redis://u:${MARKER}@x:port`, `redis://u:${MARKER}@x/db`, `redis://u:${MARKER}@x:70000`,
    `rediss:/${MARKER}`, 'redis://x/-1', 'redis://x/0/1', 'unix://', `redis://u:${MARKER}@[::1`, 'redis://x y', `redis://%zz:${MARKER}@x`,
  ]) {
    try {
      connect(bad)
      // What is no mistake of form may be one of name: it must not be believed either way.
      assert.ok(['redis://x y', `redis://%zz:${MARKER}@x`].includes(bad), `accepted: ${bad}`)
    } catch (error) {
      assert.ok(error instanceof InvalidUrl, `${bad}: ${error}`)
      assert.equal(error.code, 'invalid_url')
      assert.match(error.message, /url/i, 'says what it is about')
      assert.doesNotMatch(error.stack + inspect(error), /marker-77ab/)
    }
  }
})

test('nobody listens: Unreachable at once, and what to do', async () => {
  const { error, took } = await refused(`redis://u:${MARKER}@127.0.0.1:1`, quick)
  assert.ok(error instanceof Unreachable)
  assert.match(error.message, /127\.0\.0\.1:1/)
  assert.match(error.message, /check/)
  assert.ok(took < 2 * 400 + 100, `${took} ms`)
})

test('a name that nobody has, a socket file that is not there', async () => {
  for (const target of [`redis://u:${MARKER}@no-such-host.invalid`, 'unix:///nowhere/redis.sock']) {
    const { error, took } = await refused(target, { connectTimeout: 1500, opTimeout: 500 })
    assert.ok(error instanceof Unreachable, String(error))
    assert.match(error.message, /no-such-host|nowhere/)
    assert.ok(took < 2200, `${took} ms`)
  }
})

test('a server that accepts and never answers: within the connect time-out', async () => {
  const { error, took } = await refused(`redis://u:${MARKER}@127.0.0.1:${await liar(null)}`, { connectTimeout: 300, opTimeout: 200 })
  assert.ok(error instanceof Unreachable, String(error))
  assert.match(error.message, /300 ms/)
  assert.ok(took >= 280 && took < 700, `${took} ms`)
})

test('a server that is slow to reach has connectTimeout for that, and opTimeout only for each answer', async () => {
  const slow = net.createServer(socket => {
    socket.on('error', () => {})
    setTimeout(() => {
      const server = net.connect(port, '127.0.0.1').on('error', () => {})
      socket.pipe(server).pipe(socket)
    }, 600)
  }).listen(0, '127.0.0.1')
  await once(slow, 'listening')
  const client = connect(`redis://127.0.0.1:${slow.address().port}`, { connectTimeout: 2000, opTimeout: 250 })
  const { value, error, took } = await timed(client.lock(fresh()).acquire({ wait: 0 }))
  assert.equal(error, undefined)
  assert.ok(took > 550 && took < 900, `${took} ms`)
  await value.release()
  await client.close()
  slow.close()
})

test('servers that are none, or too old, or hostile', async () => {
  const answers = {
    http: 'HTTP/1.1 400 Bad Request\r\nContent-Type: text/html\r\n\r\n<html></html>',
    ssh: 'SSH-2.0-OpenSSH_9.6\r\n',
    tls: '\x15\x03\x01\x00\x02\x02\x28',
    old: "-ERR unknown command 'HELLO'\r\n",
    protover: '-NOPROTO unsupported protocol version\r\n',
    'huge text': '$1073741824\r\n',
    'huge list': '*1000000000\r\n',
    'deep list': '*1\r\n'.repeat(100),
    'long line': `+${'a'.repeat(200_000)}`,
    'below zero': '$-7\r\n',
    zeros: '\0'.repeat(64),
  }
  const before = process.memoryUsage.rss()
  await Promise.all(Object.entries(answers).map(async ([what, answer]) => {
    const { error, took } = await refused(`redis://u:${MARKER}@127.0.0.1:${await liar(answer)}`, quick)
    assert.ok(error instanceof Protocol || error instanceof Unreachable, `${what}: ${error}`)
    assert.ok(took < 1500, `${what}: ${took} ms`)
    if (what === 'old') {
      assert.ok(error instanceof Protocol, String(error))
      assert.match(error.message, /6\.2/)
    }
  }))
  assert.ok(process.memoryUsage.rss() - before < 64 << 20, 'a declared length was believed')
})

test('wrong port of the right host: tls on plain, plain on tls', async () => {
  const { error } = await refused(url.replace('redis://', 'rediss://'), quick)
  assert.ok(error instanceof Protocol || error instanceof Unreachable, String(error))
})

test('the wait goes on when the server is lost, and ends when it is back', async () => {
  const client = connect(wire.url, quick)
  const name = fresh()
  await takeAs(call, name, 30_000)
  const waiting = client.lock(name).acquire()
  await until(async () => (await call('PUBSUB', 'NUMSUB', `redisson_lock__channel:{${name}}`))[1] > 0)
  await wire.cut()
  await sleep(700)
  await freeAs(call, name)
  await wire.tell('pass')
  const { value, took } = await timed(waiting)
  assert.ok(took < 1500, `${took} ms after the server was back`)
  await value.release()
  await client.close()
})

test('what is asked for while the server is away waits for it too', async () => {
  const client = connect(wire.url, quick)
  await (await client.lock(fresh()).acquire()).release()
  await wire.cut()
  const names = Array.from({ length: 20 }, () => fresh())
  const all = names.map(name => client.lock(name).acquire({ wait: 10_000 }))
  await sleep(500)
  await wire.tell('pass')
  const { value, took } = await timed(Promise.all(all))
  assert.ok(took < 1500, `${took} ms`)
  await Promise.all(value.map(held => held.release()))
  assert.equal(await call('EXISTS', ...names), 0)
  await client.close()
})

test('Unreachable when the wait ends', async () => {
  const client = connect(wire.url, quick)
  const names = Array.from({ length: 9 }, () => fresh())
  await (await client.lock(fresh()).acquire()).release()
  for (const name of names) await takeAs(call, name, 30_000)
  for (const away of [true, false]) {
    if (away) await wire.cut()
    const waiting = names.map(name => timed(client.lock(name).acquire({ wait: 500 })))
    if (!away) {
      await sleep(100)
      await wire.cut()
    }
    const ends = await Promise.all(waiting)
    for (const { error } of ends) {
      assert.ok(error instanceof Unreachable || (!away && error instanceof LockTimeout), String(error))
    }
    const took = ends.map(end => end.took)
    assert.ok(Math.min(...took) > 480 && median(took) < 580 && Math.max(...took) < 1500, summary(took))
    await wire.tell('pass')
    await sleep(300)
  }
  await call('DEL', ...names)
  await client.close()
})

test('Unreachable after unreachableAfter where there is no end, not before', async () => {
  const client = connect(wire.url, { ...quick, unreachableAfter: 900 })
  const name = fresh()
  await takeAs(call, name, 30_000)
  const waiting = timed(client.lock(name).acquire())
  await sleep(150)
  // Away for shorter than that, twice: each absence counts from its own start.
  for (let round = 0; round < 2; round++) {
    await wire.cut()
    await sleep(500)
    await wire.tell('pass')
    await until(async () => (await call('PUBSUB', 'NUMSUB', `redisson_lock__channel:{${name}}`))[1] > 0)
    await sleep(50)
  }
  await wire.cut()
  const began = performance.now()
  const { error } = await waiting
  const took = performance.now() - began
  assert.ok(error instanceof Unreachable, String(error))
  assert.equal(error.lockName, name)
  assert.ok(took > 850 && took < 1500, `${took} ms`)

  // Who was never told that the lock is held has nothing to outlast: the time to connect and to answer is all.
  const never = await timed(client.lock(fresh()).acquire())
  assert.ok(never.error instanceof Unreachable, String(never.error))
  assert.ok(never.took > 400 && never.took < 1000, `${never.took} ms`)
  await call('DEL', name)
  await wire.tell('pass')
  await (await client.lock(name).acquire()).release()
  await client.close()
})

test('close does not wait for a server that is away', async () => {
  const client = connect(wire.url, { connectTimeout: 5000, opTimeout: 600 })
  const held = await client.lock(fresh()).acquire()
  await wire.tell('stall both')
  const waiting = client.lock(fresh()).acquire()
  const rejected = assert.rejects(waiting, Closed)
  const { took } = await timed(client.close())
  await rejected
  assert.ok(took < 800, `${took} ms`)
  assert.equal(held.valid, false)
})

test('a server that is another after the reconnect', async () => {
  const second = await redis()
  const client = connect(wire.url, { ...quick, watchdog: 1500 })
  const held = await client.lock(fresh()).acquire()
  const told = new Promise(resolve => held.onLost(resolve))
  await sleep(600)
  await wire.tell(`target 127.0.0.1:${second.port}`)
  await wire.tell('reset')
  const { took } = await timed(told)
  assert.ok(took < 600, `told ${took} ms later`)
  const again = await client.lock(held.name).acquire()
  assert.equal(await second.call('EXISTS', held.name), 1)
  await again.release()
  await wire.tell(`target 127.0.0.1:${port}`)
  await call('DEL', held.name)
  await held.release().catch(() => {})
  await client.close()
})

// What must hold when the network or the server does not.
import assert from 'node:assert/strict'
import { after, test } from 'node:test'

import {
  LockLost, LockTimeout, OutOfMemory, PermissionDenied, Protocol, ReadOnly, ReleaseUnknown, Unreachable, WrongType, connect,
} from 'bandog'
import net from 'node:net'
import { once } from 'node:events'
import { proxy } from './proxy.mjs'
import { block, fresh, redis, sleep, until } from './redis.mjs'

const { url, port, call, server } = await redis('--maxmemory-policy', 'noeviction')
const direct = connect(url, { watchdog: 2000 })
after(() => direct.close())

const through = async (t, options) => {
  const road = await proxy(port)
  const client = connect(road.url, { watchdog: 900, opTimeout: 400, connectTimeout: 400, ...options })
  t.after(() => client.close())
  return { road, client }
}

const evals = async () => Number(/^cmdstat_evalsha:calls=(\d+)/m.exec(await call('INFO', 'commandstats'))?.[1] ?? 0)

test('vectors of the plain lock: keys, fields, counts, channel and payload', async () => {
  for (const name of ['order_lock', 'a{b}c']) {
    const channel = name.includes('{') ? `redisson_lock__channel:${name}` : `redisson_lock__channel:{${name}}`
    const listener = net.connect(port, '127.0.0.1').setEncoding('utf8')
    let heard = ''
    listener.on('data', chunk => { heard += chunk })
    listener.write(`SUBSCRIBE ${channel}\r\n`)
    await once(listener, 'data')
    heard = ''
    const held = await direct.lock(name).acquire({ lease: 30_000 })
    assert.deepEqual(await call('HGETALL', name), [held.owner, '1'])
    assert.equal(await call('TYPE', name), 'hash')
    const inner = await held.reenter()
    assert.deepEqual(await call('HGETALL', name), [held.owner, '2'])
    assert.equal(await direct.lock(name).tryAcquire(), null)
    await inner.release()
    assert.deepEqual(await call('HGETALL', name), [held.owner, '1'])
    assert.equal(heard, '')
    await held.release()
    await until(() => heard.includes('$1\r\n0\r\n'))
    assert.deepEqual(await call('KEYS', '*'), [])
    listener.destroy()
  }
})

test('two requests for a cycle, two tries for a wait', async () => {
  const name = fresh()
  await (await direct.lock(name).acquire()).release()
  const before = await evals()
  for (let round = 0; round < 50; round++) await (await direct.lock(name).acquire({ lease: 60_000 })).release()
  assert.equal(await evals() - before, 100)

  const held = await direct.lock(name).acquire({ lease: 60_000 })
  const other = connect(url)
  await (await other.lock(fresh()).acquire()).release()
  const start = await evals()
  const waiting = other.lock(name).acquire({ lease: 60_000 })
  await sleep(1000)
  assert.equal(await evals() - start, 2)
  await held.release()
  await (await waiting).release()
  assert.equal(await evals() - start, 5)
  await other.close()
})

test('L7: the holder behind a stalled link is told before another gets the lock, 20 of 20', async t => {
  const { road, client } = await through(t)
  const holds = await Promise.all(Array.from({ length: 20 }, () => client.lock(fresh()).acquire()))
  const order = []
  const told = holds.map(held => new Promise(resolve => held.onLost(() => { order.push(['told', held.name, held.valid]); resolve() })))
  const grants = holds.map(async held => {
    const next = await direct.lock(held.name).acquire()
    order.push(['granted', held.name, held.valid])
    await next.release()
  })
  await sleep(50)
  road.stall()
  await Promise.all([...told, ...grants])
  road.resume()
  for (const { name } of holds) {
    const mine = order.filter(step => step[1] === name)
    assert.deepEqual(mine.map(step => [step[0], step[2]]), [['told', false], ['granted', false]])
  }
  await Promise.all(holds.map(held => assert.rejects(held.release(), LockLost)))
})

test('S6: a grant to a blocked loop is given back, and comes again', async () => {
  const client = connect(url, { watchdog: 600 })
  const lock = client.lock(fresh())
  await (await lock.acquire()).release()
  const before = await evals()
  const promise = lock.acquire()
  block(900)
  const held = await promise
  assert.ok(await evals() - before >= 3, 'taken, given back, taken')
  assert.ok(held.valid && held.remaining() >= 250, `${held.remaining()}`)
  assert.deepEqual(await call('HGETALL', lock.name), [held.owner, '1'])
  await held.release()
  await client.close()
})

test('F17: replies swallowed, then the link cut: one hold, count right, at once', async t => {
  const { road, client } = await through(t)
  await (await client.lock(fresh()).acquire()).release()
  for (let round = 0; round < 5; round++) {
    const lock = client.lock(fresh())
    road.swallow(true)
    const promise = lock.acquire()
    await sleep(30)
    road.swallow(false)
    const began = performance.now()
    road.cut()
    const held = await promise
    assert.ok(performance.now() - began < 300)
    assert.deepEqual(await call('HGETALL', lock.name), [held.owner, '1'])

    const inner = held.reenter()
    road.cut()
    assert.deepEqual([(await inner).count, await call('HGET', lock.name, held.owner)], [2, '2'])
    road.swallow(true)
    const released = held.release()
    await sleep(20)
    road.swallow(false)
    road.cut()
    await released
    await (await inner).release()
    assert.equal(await call('EXISTS', lock.name), 0)
  }
})

test('F33: an abort while the reply is swallowed leaves no orphan', async t => {
  const { road, client } = await through(t)
  await (await client.lock(fresh()).acquire()).release()
  const lock = client.lock(fresh())
  const controller = new AbortController()
  road.swallow(true)
  const promise = lock.acquire({ signal: controller.signal })
  await until(() => call('EXISTS', lock.name))
  controller.abort()
  await assert.rejects(promise, { name: 'AbortError' })
  road.swallow(false)
  await until(async () => !(await call('EXISTS', lock.name)), 3000)
})

test('L4: a release that nobody answers returns in time and says when the lock is free', async t => {
  const { road, client } = await through(t)
  const held = await client.lock(fresh()).acquire()
  road.stall()
  const began = performance.now()
  await assert.rejects(held.release(), error => {
    assert.ok(error instanceof ReleaseUnknown, String(error))
    assert.ok(error.freeAtLatest > 0 && error.freeAtLatest <= 1000, `${error.freeAtLatest}`)
    return true
  })
  assert.ok(performance.now() - began < 500)
  await (await direct.lock(held.name).acquire({ wait: 1000 })).release()
  road.resume()
})

test('L5: a wait is total, also when nobody answers', async t => {
  const { road, client } = await through(t, { opTimeout: 5000, connectTimeout: 5000 })
  await (await client.lock(fresh()).acquire()).release()
  road.stall()
  const began = performance.now()
  await assert.rejects(client.lock(fresh()).acquire({ wait: 200 }), error => error instanceof Unreachable || error instanceof LockTimeout)
  const took = performance.now() - began
  assert.ok(took >= 190 && took < 260, `${took} ms`)
  road.resume()
})

test('a server that is lost while waiting: the wait goes on', async t => {
  const { road, client } = await through(t)
  const held = await direct.lock(fresh()).acquire()
  const waiting = client.lock(held.name).acquire()
  await sleep(50)
  road.cut()
  await sleep(100)
  road.stall()
  await sleep(600)
  road.resume()
  road.cut()
  await held.release()
  await (await waiting).release()
})

test('a wait without an end gives up after unreachableAfter', async t => {
  const { road, client } = await through(t, { unreachableAfter: 700 })
  const held = await direct.lock(fresh()).acquire()
  const waiting = client.lock(held.name).acquire()
  await sleep(50)
  road.stall()
  road.cut()
  await assert.rejects(waiting, Unreachable)
  road.resume()
  await held.release()
})

test('F07: SCRIPT FLUSH before every call', async () => {
  for (let round = 0; round < 10; round++) {
    await call('SCRIPT', 'FLUSH')
    const held = await direct.lock(fresh()).acquire()
    await call('SCRIPT', 'FLUSH')
    const inner = await held.reenter()
    await call('SCRIPT', 'FLUSH')
    await inner.release()
    await call('SCRIPT', 'FLUSH')
    await held.release()
    assert.equal(await call('EXISTS', held.name), 0)
  }
})

test('F08: out of memory', async t => {
  t.after(() => call('CONFIG', 'SET', 'maxmemory', 0))
  const held = await direct.lock(fresh()).acquire()
  await call('CONFIG', 'SET', 'maxmemory', 1)
  await assert.rejects(direct.lock(fresh()).acquire({ wait: 0 }), OutOfMemory)
  await held.release()
  await call('CONFIG', 'SET', 'maxmemory', 0)
  assert.deepEqual(await call('KEYS', '*'), [])
})

test('F10: a replica', async t => {
  t.after(() => call('REPLICAOF', 'NO', 'ONE'))
  await call('REPLICAOF', '127.0.0.1', 1)
  await call('CONFIG', 'SET', 'replica-serve-stale-data', 'yes')
  await assert.rejects(direct.lock(fresh()).acquire({ wait: 0 }), ReadOnly)
})

test('F36: a user without a right is told which', async t => {
  t.after(() => call('ACL', 'DELUSER', 'small'))
  for (const [missing, refused] of [['-evalsha -eval', true], ['-hset', true], ['-pexpire', true], ['-client', false]]) {
    await call('ACL', 'SETUSER', 'small', 'reset', 'on', '>a-secret', '~*', '&*', '+@all', ...missing.split(' '))
    const client = connect(`redis://small:a-secret@127.0.0.1:${port}`)
    const lock = client.lock(fresh())
    if (refused) {
      await assert.rejects(lock.acquire({ wait: 0 }), error => {
        assert.ok(error instanceof PermissionDenied, `${missing}: ${error}`)
        assert.doesNotMatch(error.stack + JSON.stringify(error), /a-secret/)
        return true
      })
    } else {
      await (await lock.acquire()).release()
    }
    await client.close()
    assert.equal(await call('EXISTS', lock.name), 0)
  }
})

test('F39: a key tampered with', async () => {
  for (const fields of [['a', 'b'], ['a', '1', 'b', '1'], ['28547 5da:52', '1'], ['mode', 'write']]) {
    const name = fresh()
    await call('HSET', name, ...fields)
    await assert.rejects(direct.lock(name).acquire({ wait: 0 }), WrongType, String(fields))
    assert.deepEqual(await call('HGETALL', name), fields)
    await call('DEL', name)
  }
  const held = await direct.lock(fresh()).acquire()
  await call('DEL', held.name)
  await call('SET', held.name, 'x')
  await new Promise(resolve => held.onLost(resolve))
  await assert.rejects(held.release(), LockLost)
  assert.equal(await call('GET', held.name), 'x')
  await call('DEL', held.name)
})

test('a server that talks nonsense', async t => {
  for (const reply of ['HTTP/1.1 400 Bad Request\r\n\r\n', '*999999999\r\n', '$-5\r\n', '\0\0\0\0']) {
    const liar = net.createServer(socket => socket.on('error', () => {}).once('data', () => socket.write(reply))).listen(0, '127.0.0.1')
    await once(liar, 'listening')
    const client = connect(`redis://127.0.0.1:${liar.address().port}`, { connectTimeout: 500, opTimeout: 500 })
    const began = performance.now()
    await assert.rejects(client.lock('a').acquire({ wait: 0 }), error => error instanceof Protocol || error instanceof Unreachable)
    assert.ok(performance.now() - began < 1500)
    await client.close()
    liar.close()
  }
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

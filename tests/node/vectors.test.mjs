// The vectors of the protocol (20.1): our operations leave the keys, types, fields, expiries and messages that Redisson
// leaves, and understand what it leaves. Differences that are meant: no unlock latch, counts are absolute.
import assert from 'node:assert/strict'
import { after, test } from 'node:test'

import { InvalidLease, LockTimeout, NotOwner, WrongType, connect } from 'bandog'
import { redis, until } from './redis.mjs'
import { STRANGER, channelOf, freeAs, takeAs } from './support/lease.mjs'
import { listener } from './support/listener.mjs'

const { url, port, call } = await redis('--notify-keyspace-events', '')
const a = connect(url)
const b = connect(url)
after(() => Promise.all([a.close(), b.close()]))

const keys = async () => (await call('KEYS', '*')).sort()
const hash = async name => {
  const flat = await call('HGETALL', name)
  return Object.fromEntries(flat.map((word, at) => [word, flat[at + 1]]).filter((_, at) => at % 2 === 0))
}

for (const name of ['order_lock', 'a{b}c', 'order lock:\u{1f512}']) {
  test(`rows 1-9, 13: ${name}`, async () => {
    const heard = await listener(port, channelOf(name), call)
    const fresh = async () => {
      const left = await call('PTTL', name)
      assert.ok(left > 29_000 && left <= 30_000, `${left} ms left of 30000`)
    }

    // 1
    const held = await a.lock(name).acquire()
    assert.match(held.owner, /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}:\d+$/)
    assert.deepEqual(await hash(name), { [held.owner]: '1' })
    assert.equal(await call('TYPE', name), 'hash')
    assert.equal((await keys()).length, 1)
    await fresh()

    // 2
    await call('PEXPIRE', name, 20_000)
    const inner = await held.reenter()
    assert.deepEqual(await hash(name), { [held.owner]: '2' })
    await fresh()

    // 3
    assert.equal(await b.lock(name).tryAcquire(), null)
    await assert.rejects(b.lock(name).acquire({ wait: 0 }), LockTimeout)
    assert.deepEqual(await hash(name), { [held.owner]: '2' })

    // 4
    await assert.rejects(b.lock(name).release(), NotOwner)
    assert.deepEqual(await hash(name), { [held.owner]: '2' })

    // 5: the expiry is put back, nothing is told, no latch stays
    await call('PEXPIRE', name, 20_000)
    await inner.release()
    assert.deepEqual(await hash(name), { [held.owner]: '1' })
    await fresh()
    assert.equal((await keys()).length, 1)
    assert.deepEqual(await heard.flush(), [])

    // 7
    await held.release()
    assert.deepEqual(await keys(), [])
    assert.deepEqual(await heard.flush(), ['0'])

    // 9
    await assert.rejects(held.release(), NotOwner)
    assert.deepEqual(await keys(), [])
    assert.deepEqual(await heard.flush(), [])
  })

  test(`a lock that Redisson holds, re-enters and releases: ${name}`, async () => {
    await takeAs(call, name, 30_000)
    await call('HINCRBY', name, STRANGER, 1)
    assert.equal(await a.lock(name).locked(), true)
    const left = await a.lock(name).remaining()
    assert.ok(left > 29_000 && left <= 30_000)
    assert.equal(await a.lock(name).tryAcquire(), null)
    const waiting = a.lock(name).acquire({ wait: 5000 })
    await until(async () => (await call('PUBSUB', 'NUMSUB', channelOf(name)))[1] === 1)
    assert.deepEqual(await hash(name), { [STRANGER]: '2' })
    await freeAs(call, name)
    await (await waiting).release()
    assert.deepEqual(await keys(), [])
  })

  test(`a forced release tells the waiters: ${name}`, async () => {
    const heard = await listener(port, channelOf(name), call)
    await takeAs(call, name, 30_000)
    assert.equal(await a.lock(name).forceRelease(), true)
    assert.deepEqual(await keys(), [])
    assert.deepEqual(await heard.flush(), ['0'])
    assert.equal(await a.lock(name).forceRelease(), false)
    assert.deepEqual(await heard.flush(), [])
  })
}

test('rows 10, 11, 12: no expiry, another type, no lease', async () => {
  await call('HSET', 'forever', STRANGER, 1)
  assert.equal(await b.lock('forever').tryAcquire(), null)
  const left = await call('PTTL', 'forever')
  assert.ok(left > 29_000 && left <= 30_000, 'a lock without an expiry is given one')
  await call('SET', 'text', 'x')
  await assert.rejects(b.lock('text').acquire(), WrongType)
  assert.equal(await call('GET', 'text'), 'x')
  await assert.rejects(b.lock('free').acquire({ lease: 0 }), InvalidLease)
  assert.equal(await call('EXISTS', 'free'), 0)
  await call('FLUSHALL')
})

test('other owners of Redisson are owners: transactions, negative thread ids', async () => {
  for (const owner of [`${STRANGER}:8f9a7c2e`, STRANGER.replace(':52', ':-7'), STRANGER.replace(':52', ':9223372036854775807')]) {
    await takeAs(call, 'order_lock', 30_000, owner)
    assert.equal(await a.lock('order_lock').tryAcquire(), null)
    assert.deepEqual(await hash('order_lock'), { [owner]: '1' })
    await call('DEL', 'order_lock')
  }
})

test('two holds draw two numbers, two clients two uuids', async () => {
  const owners = []
  for (const client of [a, a, b]) {
    const held = await client.lock('order_lock').acquire()
    owners.push(held.owner)
    await held.release()
  }
  assert.equal(new Set(owners).size, 3)
  const [one, two, three] = owners.map(owner => owner.split(':')[0])
  assert.equal(one, two)
  assert.notEqual(one, three)
})

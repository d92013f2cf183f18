// L6, F39, F40: keys that somebody else spoils. One bad key harms no other, what is not a lock is never written, and the
// holder is told, or has its expiry put back.
import assert from 'node:assert/strict'
import { after, test } from 'node:test'

import { LockLost, LockTimeout, NotOwner, WrongType, connect } from 'bandog'
import { fresh, redis, sleep, until } from './redis.mjs'
import { timed } from './support/figures.mjs'
import { STRANGER, least, takeAs } from './support/lease.mjs'

const { url, port, call } = await redis()
const LEASE = 600
const client = connect(url, { watchdog: LEASE })
const other = connect(url)
after(() => Promise.all([client.close(), other.close()]))

// A release names its channel among its keys, as Redisson does.
const CHANNELS = '~redisson_lock__channel:*'

const told = held => new Promise(resolve => held.onLost(resolve))

// A right withdrawn is doubtful for long before it is lost, so it is given back; what is gone is taken anew.
const harms = {
  deleted: async ({ held, lock }) => {
    const loss = told(held)
    await call('DEL', held.name)
    await loss
    return lock.acquire()
  },
  'of another type': async ({ held, lock }) => {
    const loss = told(held)
    await call('EVAL', `redis.call('DEL', KEYS[1]) redis.call('RPUSH', KEYS[1], 'x') redis.call('PEXPIRE', KEYS[1], 60000)`, 1, held.name)
    await loss
    assert.equal(await call('TYPE', held.name), 'list')
    await call('DEL', held.name)
    return lock.acquire()
  },
  'out of reach': async ({ held, user, names }) => {
    const of = list => [CHANNELS, ...list.map(name => `~${name}`)]
    await call('ACL', 'SETUSER', user, 'resetkeys', ...of(names.filter(name => name !== held.name)))
    await sleep(LEASE / 3)
    await call('ACL', 'SETUSER', user, 'resetkeys', ...of(names))
    await sleep(30)
    assert.equal(held.lost, null)
    return held
  },
}

test('l6: one of a hundred is spoilt, two hundred times: the other ninety-nine are never late', async t => {
  // Five clients at once, for the clock's sake.
  let rounds = 0
  const lows = await Promise.all(Array.from({ length: 5 }, async (_, lane) => {
    const user = `user${lane}`
    const names = Array.from({ length: 100 }, () => fresh(`lane${lane}`))
    await call('ACL', 'SETUSER', user, 'on', '>word', '&*', '+@all', CHANNELS, ...names.map(name => `~${name}`))
    const own = connect(`redis://${user}:word@127.0.0.1:${port}`, { watchdog: LEASE })
    const locks = names.map(name => own.lock(name))
    const holds = await Promise.all(locks.map(lock => lock.acquire()))
    let low = { ttl: Infinity }
    for (let round = 0; round < 40; round++) {
      const bad = (round * 37 + lane) % 100
      const [what, harm] = Object.entries(harms)[round % 3]
      const rest = names.filter((_, at) => at !== bad)
      const hurt = harm({ held: holds[bad], lock: locks[bad], user, names })
      const seen = await least(call, rest, hurt)
      if (seen.ttl < low.ttl) low = { ...seen, what }
      const old = holds[bad]
      holds[bad] = await hurt
      if (holds[bad] !== old) await old.release().catch(error => assert.ok(error instanceof LockLost, String(error)))
      rounds++
    }
    assert.ok(holds.every(held => held.valid))
    await Promise.all(holds.map(held => held.release()))
    await own.close()
    return low
  }))
  const low = lows.reduce((a, b) => (a.ttl < b.ttl ? a : b))
  t.diagnostic(`${rounds} rounds, least time left of the others: ${low.ttl} ms of ${LEASE} (${low.what})`)
  assert.equal(rounds, 200)
  assert.ok(low.ttl >= LEASE / 2, JSON.stringify(low))
})

test('f39: another type at the key: WrongType at once, nothing is written', async () => {
  const name = fresh()
  const kinds = [
    ['SET', 'x'], ['RPUSH', 'x'], ['SADD', 'x'], ['ZADD', 1, 'x'], ['XADD', '*', 'a', 'b'],
    ['HSET', 'a', 'b'], ['HSET', 'mode', 'read', STRANGER, 1], ['HSET', 'mode', 'write', `${STRANGER}:write`, 1],
    ['HSET', STRANGER, 'x'], ['HSET', STRANGER, 1, 'more', 1],
  ]
  for (const [command, ...words] of kinds) {
    await call(command, name, ...words)
    const before = await call('DUMP', name)
    for (const wish of [lock => lock.acquire(), lock => lock.tryAcquire(), lock => lock.locked(), lock => lock.remaining(), lock => lock.forceRelease()]) {
      const { error, took } = await timed(wish(other.lock(name)))
      assert.ok(error instanceof WrongType, `${command} ${words}: ${error}`)
      assert.equal(error.lockName, name)
      assert.ok(took < 500)
    }
    assert.equal(await call('DUMP', name), before)
    assert.equal(await call('PTTL', name), -1)
    await call('DEL', name)
  }
})

test('f39: another type while held: told at the next renewal, and it is left alone', async () => {
  for (const [command, ...words] of [['SET', 'x'], ['RPUSH', 'x'], ['HSET', 'a', 'b']]) {
    const lock = client.lock(fresh())
    const events = lock.events()
    const held = await lock.acquire()
    await call('DEL', lock.name)
    await call(command, lock.name, ...words)
    const { took } = await timed(told(held))
    assert.ok(took <= LEASE / 3 + 100, `${took} ms`)
    for await (const event of events) {
      if (event.kind !== 'lost') continue
      assert.ok(['overwritten', 'taken'].includes(event.why), event.why)
      break
    }
    await assert.rejects(held.release(), LockLost)
    assert.equal(await call('PTTL', lock.name), -1)
    await call('DEL', lock.name)
  }
})

test('f39: another type while waiting: the wait ends with WrongType', async () => {
  const name = fresh()
  await takeAs(call, name, 300)
  const waiting = other.lock(name).acquire({ wait: 5000 })
  await sleep(50)
  await call('DEL', name)
  await call('SET', name, 'x')
  const { error, took } = await timed(waiting)
  assert.ok(error instanceof WrongType, String(error))
  assert.ok(took < 600)
  assert.equal(await call('GET', name), 'x')
})

test('f40: what is changed behind a holder is told at the next renewal', async () => {
  const changes = {
    deleted: name => call('DEL', name),
    renamed: name => call('RENAME', name, `${name}:moved`),
    'another field': (name, owner) => call('EVAL', `redis.call('HDEL', KEYS[1], ARGV[1]) redis.call('HSET', KEYS[1], ARGV[2], 1) redis.call('PEXPIRE', KEYS[1], 60000)`, 1, name, owner, STRANGER),
    'expired at once': name => call('PEXPIRE', name, 1),
    flushed: () => call('FLUSHDB'),
  }
  for (const [what, change] of Object.entries(changes)) {
    const held = await client.lock(fresh()).acquire()
    const loss = told(held)
    await change(held.name, held.owner)
    const { took, value } = await timed(loss)
    assert.ok(value instanceof LockLost, what)
    assert.ok(took <= LEASE / 3 + 100, `${what}: ${took} ms`)
    assert.equal(held.valid, false)
    await assert.rejects(held.release(), LockLost)
    if (what === 'another field') assert.equal(await call('HGET', held.name, STRANGER), '1')
    await call('FLUSHDB')
  }
})

test('f40: an expiry that was cut or taken away is put back, a count is corrected', async () => {
  const held = await client.lock(fresh()).acquire()
  for (const [command, ...words] of [['PEXPIRE', LEASE / 3 + 150], ['PERSIST']]) {
    await call(command, held.name, ...words)
    await until(async () => {
      const left = await call('PTTL', held.name)
      return left > LEASE - 100 && left <= LEASE
    }, 1000)
    assert.equal(held.valid, true)
  }
  for (const count of ['7', '0', '-3', 'x']) {
    await call('HSET', held.name, held.owner, count)
    await held.reenter().then(inner => inner.release())
    assert.ok(['1', count].includes(await call('HGET', held.name, held.owner)), count)
  }
  await held.release()
  assert.equal(await call('EXISTS', held.name), 0, 'the outermost release removes the whole hold')
})

test('f40: an expiry set to a year goes with the release', async () => {
  const held = await client.lock(fresh()).acquire()
  await call('PEXPIRE', held.name, 31_536_000_000)
  await sleep(LEASE)
  assert.equal(held.valid, true)
  await held.release()
  assert.equal(await call('EXISTS', held.name), 0)
})

test('l3: a lock without an expiry is given one by whoever waits, and an operator is told', async () => {
  const name = fresh()
  await call('HSET', name, STRANGER, 1)
  const events = client.events()
  const { value, took } = await timed(client.lock(name).acquire({ wait: 3000 }))
  assert.ok(took >= LEASE - 20 && took < LEASE + 200, `${took} ms`)
  for await (const event of events) {
    if (event.kind !== 'warning') continue
    assert.equal(event.name, name)
    assert.match(event.text, /expir/)
    break
  }
  await value.release()
})

test('s3: a hash with more than one owner is left alone by a release', async () => {
  const held = await client.lock(fresh()).acquire()
  await call('HSET', held.name, STRANGER, 1)
  await held.release()
  assert.deepEqual(await call('HGETALL', held.name), [STRANGER, '1'])
  await assert.rejects(other.lock(held.name).acquire({ wait: 30 }), LockTimeout)
  await call('DEL', held.name)
  await assert.rejects(held.release(), NotOwner)
})

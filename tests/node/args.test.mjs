// F41, F42: names, leases, waits and options out of the tables are refused with their type, before any I/O: the
// server of this file does not exist.
import assert from 'node:assert/strict'
import { after, test } from 'node:test'

import { InvalidLease, InvalidName, InvalidOption, InvalidUrl, LockError, PermissionDenied, Unreachable, connect, locked } from 'bandog'
import { fresh, redis } from './redis.mjs'

const nowhere = connect('redis://127.0.0.1:1', { connectTimeout: 300, opTimeout: 300, unreachableAfter: 500 })
after(() => nowhere.close())

const numbers = [NaN, Infinity, -Infinity, -1, -0.5, 2 ** 53, 2 ** 60, 1e300, '5', '', true, 5n, {}, [], () => 5, Symbol('5')]

test('names', () => {
  for (const name of [undefined, null, 5, {}, ['a'], Symbol('a'), '', 'a'.repeat(513), '\ud800', 'a\udc00b', 'redisson_lock__channel:{a}']) {
    assert.throws(() => nowhere.lock(name), InvalidName, String(name))
  }
  for (const name of ['a', ' ', 'a\0b', 'a\r\nb', '{}', '{a}b', 'ключ', '\u{1f512}', 'e\u0301', 'a'.repeat(512), '__proto__']) {
    assert.equal(nowhere.lock(name).name, name)
  }
})

test('leases', async () => {
  const lock = nowhere.lock('a')
  for (const lease of [0, 1, 9, ...numbers]) {
    await assert.rejects(lock.acquire({ lease }), InvalidLease)
    await assert.rejects(lock.tryAcquire({ lease }), InvalidLease)
    if (lease !== 0) assert.throws(() => connect('redis://x', { watchdog: lease }), InvalidLease)
  }
  assert.throws(() => connect('redis://x', { watchdog: null }), InvalidLease)
})

test('waits', async () => {
  const lock = nowhere.lock('a')
  for (const wait of numbers) {
    await assert.rejects(lock.acquire({ wait }), InvalidOption)
    await assert.rejects(lock.using(() => assert.fail('never'), { wait }), InvalidOption)
  }
  for (const options of [5, 'x', true, 5n, () => 5]) {
    await assert.rejects(lock.acquire(options), InvalidOption)
    assert.throws(() => nowhere.lock('a', options), InvalidOption)
  }
  assert.throws(() => nowhere.lock('a', { wait: -1 }), InvalidOption)
})

test('an option that does not exist is refused by its name, by every call', async () => {
  const lock = nowhere.lock('a')
  const never = () => assert.fail('never')
  const named = key => error => error instanceof InvalidOption && error.message.includes(JSON.stringify(key))
  for (const [key, value] of [['timeout', 100], ['wiat', 5], ['Wait', 5], ['ttl', 5], ['0', 5]]) {
    const options = { [key]: value }
    await assert.rejects(lock.acquire(options), named(key))
    await assert.rejects(lock.tryAcquire(options), named(key))
    await assert.rejects(lock.using(never, options), named(key))
    assert.throws(() => nowhere.lock('a', options), named(key))
    assert.throws(() => nowhere.locked('a', never, options), named(key))
    assert.throws(() => nowhere.locked(() => 'a', never, options), named(key))
    assert.throws(() => locked('a', never, options), named(key))
  }
  const signal = new AbortController().signal
  assert.throws(() => nowhere.lock('a', { signal }), named('signal'))
  for (const list of [[], [5]]) {
    await assert.rejects(lock.acquire(list), InvalidOption)
    assert.throws(() => nowhere.lock('a', list), InvalidOption)
    assert.throws(() => connect('redis://x', list), InvalidOption)
  }
})

test('reenter takes a lease and nothing else', async t => {
  const { url } = await redis()
  const client = connect(url)
  t.after(() => client.close())
  const held = await client.lock(fresh()).acquire()
  for (const options of [{ timeout: 5 }, { wait: 5 }, { signal: AbortSignal.abort() }, []]) {
    await assert.rejects(held.reenter(options), InvalidOption)
  }
  assert.equal(held.count, 1)
  await (await held.reenter({ lease: null })).release()
  await held.release()
})

test('locked passes wait, lease and signal on', async t => {
  const { url } = await redis()
  const client = connect(url)
  t.after(() => client.close())
  const name = fresh()
  const held = await client.lock(name).acquire()
  const never = client.locked(name, () => assert.fail('never'), { wait: 5000, lease: 1000, signal: AbortSignal.timeout(30) })
  await assert.rejects(never(), { name: 'TimeoutError' })
  await held.release()
})

test('long waits and leases do not wrap', async () => {
  const { url, call } = await redis()
  const client = connect(url)
  const held = await client.lock('a').acquire({ lease: 2 ** 32 })
  const ttl = await call('PTTL', 'a')
  assert.ok(ttl > 2 ** 32 - 5000 && ttl <= 2 ** 32, `${ttl}`)
  for (const wait of [2 ** 31, 2 ** 32]) {
    const began = performance.now()
    const signal = AbortSignal.timeout(60)
    await assert.rejects(client.lock('a').acquire({ wait, signal }), { name: 'TimeoutError' })
    assert.ok(performance.now() - began >= 55)
  }
  await held.release()
  await client.close()
})

test('options', () => {
  for (const options of [{ opTimeout: 0 }, { connectTimeout: -1 }, { unreachableAfter: NaN }, { maxHold: '5' }, { localReentry: 1 }, { namePrefix: 5 }, { nonsense: 1 }, { tlsKey: 'x' }, { tlsCa: 5 }, { tlsCa: 'x' }, { tlsWithoutVerification: 'yes' }, 5, 'x']) {
    assert.throws(() => connect('redis://x', options), InvalidOption, JSON.stringify(options))
  }
  assert.equal(connect('redis://x', { namePrefix: 'shop:' }).lock('a').name, 'shop:a')
  connect('redis://x', { maxHold: null, watchdog: undefined })
})

test('an option is named as it was written', () => {
  for (const [options, code] of [
    [{ opTimeout: 0 }, 'invalid_option'], [{ connectTimeout: 0 }, 'invalid_option'],
    [{ unreachableAfter: 2 ** 52 }, 'invalid_option'], [{ maxHold: 0 }, 'invalid_option'],
    [{ namePrefix: 'a'.repeat(600) }, 'invalid_option'], [{ watchdog: '5' }, 'invalid_lease'],
    [{ watchdog: -5 }, 'invalid_lease'], [{ watchdog: 5 }, 'invalid_lease'],
  ]) {
    const [key] = Object.keys(options)
    assert.throws(() => connect('redis://x', options), error => {
      assert.equal(error.code, code)
      assert.ok(error.message.startsWith(key), error.message)
      assert.doesNotMatch(error.message, /_/)
      return true
    })
  }
})

test('urls', () => {
  for (const url of [5, {}, '', 'nonsense', 'http://x', 'redis://x:99999', 'redis://x/notanumber', '\ud800']) {
    assert.throws(() => connect(url), InvalidUrl, String(url))
  }
  try {
    connect('http://user:secret@x')
  } catch (error) {
    assert.doesNotMatch(`${error.stack}${JSON.stringify(error)}`, /secret/)
  }
})

test('a server that is not there', async () => {
  const began = performance.now()
  await assert.rejects(nowhere.lock('a').acquire({ wait: 0 }), error => {
    assert.ok(error instanceof Unreachable && error instanceof LockError)
    assert.equal(error.code, 'unreachable')
    return true
  })
  await assert.rejects(nowhere.lock('a').acquire(), Unreachable)
  assert.ok(performance.now() - began < 3000)
})

test('a wrong password is named without being told', async () => {
  const { port } = await redis('--requirepass', 'right-one')
  const client = connect(`redis://:wrong-one@127.0.0.1:${port}`)
  await assert.rejects(client.lock('a').acquire({ wait: 0 }), error => {
    assert.ok(error instanceof PermissionDenied, String(error))
    assert.doesNotMatch(`${error.stack}${JSON.stringify(error)}`, /wrong-one|right-one/)
    return true
  })
  await client.close()
})

// S4, S5, F16-F20: replies lost, requests lost, requests executed late. Whatever the wire does, a wish takes effect
// once: the count is right, and nothing stays behind that nobody holds.
import assert from 'node:assert/strict'
import { after, afterEach, test } from 'node:test'

import { LockError, LockTimeout, Unreachable, connect } from 'bandog'
import { fresh, redis, sleep, until } from './redis.mjs'
import { median, summary, timed } from './support/figures.mjs'
import { takeAs, freeAs } from './support/lease.mjs'
import { proxy } from './support/proxy.mjs'

const { url, port, call } = await redis()
const wire = await proxy(port)
const OP = 400
const client = connect(wire.url, { opTimeout: OP, watchdog: 6000 })
const direct = connect(url)
after(async () => {
  await wire.tell('pass')
  await Promise.all([client.close(), direct.close()])
})
afterEach(() => wire.tell('pass'))

const gone = (name, within = 2000) => until(async () => !(await call('EXISTS', name)), within)
const counted = async (held, count) => assert.deepEqual(await call('HGETALL', held.name), [held.owner, String(count)])
const warm = async () => (await client.lock(fresh()).acquire()).release()

/** Every kind of request of one lock, with `harm` done to the wire just before each. */
async function life(harm) {
  const lock = client.lock(fresh())
  await harm('acquire')
  const held = await lock.acquire()
  await counted(held, 1)
  await harm('re-entry')
  const inner = await held.reenter()
  await counted(held, 2)
  await harm('extend')
  await held.extend(20_000)
  assert.ok(await call('PTTL', held.name) > 15_000)
  await harm('status')
  assert.equal(await lock.locked(), true)
  await harm('inner release')
  await inner.release()
  await counted(held, 1)
  await harm('release')
  await held.release()
  assert.equal(await call('EXISTS', held.name), 0)
  await takeAs(call, lock.name, 5000)
  await harm('force')
  assert.equal(typeof await lock.forceRelease(), 'boolean')
  assert.equal(await call('EXISTS', held.name), 0)
}

for (const [what, order] of [
  ['f17: the reply of each request is lost with its connection', 'lose EVALSHA reset'],
  ['f18: each request is lost with its connection', 'drop EVALSHA reset'],
  ['f17: the replies of two tries are lost', 'lose EVALSHA reset 2'],
  ['f20: replies come byte by byte', 'trickle down 2000'],
]) {
  test(what, async () => {
    await warm()
    for (let round = 0; round < 5; round++) await life(() => wire.tell(order))
  })
}

for (const order of ['lose EVALSHA silent', 'drop EVALSHA silent']) {
  test(`f17: ${order}: an acquire takes opTimeout and a little more`, async () => {
    await warm()
    await wire.tell(order)
    const { value: held, took } = await timed(client.lock(fresh()).acquire())
    await counted(held, 1)
    assert.ok(took >= OP - 20 && took < OP + 200, `${took} ms`)
    await wire.tell('pass')
    await held.release()
    assert.equal(await call('EXISTS', held.name), 0)
  })
}

test('s5: uncontended acquire within 300 ms when the connection breaks', async t => {
  await warm()
  const took = []
  for (let round = 0; round < 40; round++) {
    await wire.tell(round % 2 ? 'lose EVALSHA reset' : 'drop EVALSHA reset')
    const { value: held, took: span } = await timed(client.lock(fresh()).acquire())
    took.push(span)
    await counted(held, 1)
    await held.release()
  }
  t.diagnostic(summary(took))
  // All but one, which the machine may have kept.
  took.sort((one, next) => one - next)
  assert.ok(took.at(-2) <= 300 && took.at(-1) <= 1500, summary(took))
})

test('f07 and f17 at once: no script, and the reply of the second sending lost', async () => {
  for (let round = 0; round < 5; round++) {
    await call('SCRIPT', 'FLUSH')
    // EVALSHA, NOSCRIPT, EVAL: the last holds the text of the script.
    await wire.tell('lose redis.call reset')
    const held = await client.lock(fresh()).acquire()
    await counted(held, 1)
    await call('SCRIPT', 'FLUSH')
    await wire.tell('lose redis.call reset')
    await held.release()
    assert.equal(await call('EXISTS', held.name), 0)
  }
  await wire.tell('pass')
})

test('f20: a connection that ends at every byte of a request and of a reply', async () => {
  await warm()
  for (const way of ['up', 'down']) {
    for (let bytes = 1; bytes <= (way === 'up' ? 200 : 8); bytes += way === 'up' ? 7 : 1) {
      await wire.tell(`cut ${way} ${bytes}`)
      const held = await client.lock(fresh()).acquire()
      await counted(held, 1)
      await wire.tell('pass')
      await held.release()
      assert.equal(await call('EXISTS', held.name), 0)
    }
  }
})

test('s5: a request kept on its way is fenced before its repetition: it never executes', async () => {
  await warm()
  for (let round = 0; round < 3; round++) {
    const lock = client.lock(fresh())
    await wire.tell('hold EVALSHA')
    const held = await lock.acquire()
    await counted(held, 1)
    await held.release()
    await wire.tell('release')
    await sleep(100)
    assert.equal(await call('EXISTS', lock.name), 0, 'the late acquire is a phantom')
  }
})

test('s5: a late re-entry and a late inner release do not count', async () => {
  await warm()
  const held = await client.lock(fresh()).acquire()
  await wire.tell('hold EVALSHA')
  const inner = await held.reenter()
  await counted(held, 2)
  await wire.tell('release')
  await sleep(50)
  await counted(held, 2)
  await wire.tell('hold redisson_lock__channel')
  await inner.release().catch(error => assert.equal(error.code, 'release_unknown'))
  await until(async () => (await call('HGET', held.name, held.owner)) === '1')
  const again = await held.reenter()
  await counted(held, 2)
  await wire.tell('release')
  await sleep(50)
  await counted(held, 2)
  await again.release()
  await held.release()
  assert.equal(await call('EXISTS', held.name), 0)
})

test('s4: the wait is over while the request is on its way: exactly that grant is released', async () => {
  await warm()
  for (const wait of [0, 100]) {
    const lock = client.lock(fresh())
    await wire.tell('hold EVALSHA')
    const { error, value, took } = await timed(lock.acquire({ wait }))
    // One try may be sent again within its connect_timeout + op_timeout.
    await value?.release()
    if (error) assert.ok(error instanceof LockTimeout || error instanceof Unreachable, String(error))
    if (wait > 0) assert.ok(error && took < wait + 60, `${took} ms`)
    await wire.tell('release')
    await wire.tell('pass')
    await sleep(30)
    const held = await direct.lock(lock.name).tryAcquire({ wait: 1500 })
    assert.notEqual(held, null, 'an orphan')
    await sleep(300)
    await counted(held, 1)
    await held.release()
  }
})

test('s4: a release written behind its acquire runs behind it', async () => {
  await warm()
  for (let round = 0; round < 10; round++) {
    const lock = client.lock(fresh())
    await wire.tell('hold EVALSHA')
    const controller = new AbortController()
    const promise = lock.acquire({ signal: controller.signal })
    await until(async () => (await wire.count('held')) > 0)
    controller.abort()
    await assert.rejects(promise, { name: 'AbortError' })
    await sleep(5)
    const before = (await call('INFO', 'commandstats')).match(/cmdstat_hset:calls=(\d+)/)?.[1]
    assert.ok(Number(await wire.tell('release')) >= 1)
    await until(async () => (await call('INFO', 'commandstats')).match(/cmdstat_hset:calls=(\d+)/)?.[1] !== before)
    await gone(lock.name)
  }
})

test('s4: where the fence is refused, the release is said again after the late execution', async t => {
  await call('ACL', 'SETUSER', 'nofence', 'on', '>word', '~*', '&*', '+@all', '-client|kill')
  const lone = connect(`redis://nofence:word@127.0.0.1:${wire.port}`, { opTimeout: 300, watchdog: 4000 })
  await (await lone.lock(fresh()).acquire()).release()
  const lock = lone.lock(fresh())
  await wire.tell('hold EVALSHA')
  const held = await lock.acquire()
  await counted(held, 1)
  await held.release()
  assert.equal(await call('EXISTS', lock.name), 0)
  assert.ok(Number(await wire.tell('release')) >= 1, 'it was still on its way')
  await until(() => call('EXISTS', lock.name), 500)
  const { took } = await timed(gone(lock.name, 3500))
  t.diagnostic(`the phantom was gone ${took.toFixed()} ms later`)
  await lone.close()
})

test('f19: a grant that comes late is no success: at least half the lease is left, or it is given back', async () => {
  await warm()
  for (const lease of [200, 400]) {
    await wire.tell(`delay down ${lease * 0.75}`)
    const lock = client.lock(fresh())
    const { error, value } = await timed(lock.acquire({ lease, wait: 1000 }))
    assert.equal(value, undefined)
    assert.ok(error instanceof LockTimeout || error instanceof Unreachable, String(error))
    await wire.tell('pass')
    await gone(lock.name)
  }
})

test('f16: one way only: nothing counts twice when the link comes back', async () => {
  for (const way of ['up', 'down', 'both']) {
    await warm()
    const held = await client.lock(fresh()).acquire()
    await wire.tell(`stall ${way}`)
    const inner = held.reenter()
    await sleep(OP / 2)
    await wire.tell('resume')
    await inner
    await counted(held, 2)
    await (await inner).release()
    await counted(held, 1)
    await held.release()
    assert.equal(await call('EXISTS', held.name), 0)
  }
})

test('fifty in flight when the connection breaks: each has its lock, once', async () => {
  await warm()
  for (let round = 0; round < 4; round++) {
    const names = Array.from({ length: 50 }, () => fresh())
    await wire.tell(`lose ${names[10 + 9 * round]} reset`)
    const holds = await Promise.all(names.map(name => client.lock(name).acquire()))
    for (const held of holds) await counted(held, 1)
    await wire.tell(`lose ${names[10 + 9 * round]} reset`)
    await Promise.all(holds.map(held => held.release()))
    assert.equal(await call('EXISTS', ...names), 0)
  }
})

test('waiting through a wire that breaks every 50 ms', async () => {
  const name = fresh()
  await takeAs(call, name, 20_000)
  const waiting = client.lock(name).acquire({ wait: 15_000 })
  for (let round = 0; round < 20; round++) {
    await sleep(50)
    await wire.tell('reset')
  }
  assert.equal(await call('HLEN', name), 1)
  await freeAs(call, name)
  const held = await waiting
  await counted(held, 1)
  await held.release()
  await sleep(50)
  assert.equal(await call('EXISTS', name), 0)
})

import assert from 'node:assert/strict'
import { AsyncResource } from 'node:async_hooks'
import { after, test } from 'node:test'

import { InvalidOption, LockLost, LockTimeout, NotOwner, connect } from 'bandog'
import { fresh, redis, until } from './redis.mjs'

const { url, call } = await redis()
const client = connect(url, { watchdog: 600 })
const other = connect(url)
after(() => Promise.all([client.close(), other.close()]))

test('using holds the lock while the body runs and gives what it gave', async () => {
  const lock = client.lock(fresh())
  const result = await lock.using(async held => {
    assert.deepEqual([held.valid, lock.held(), lock.count], [true, true, 1])
    assert.equal(await call('EXISTS', lock.name), 1)
    return 'done'
  })
  assert.equal(result, 'done')
  assert.equal(await call('EXISTS', lock.name), 0)
  assert.deepEqual([lock.held(), lock.count], [false, 0])
  assert.equal(await lock.using(() => 5), 5)
})

test('a scope re-enters its lock, by using and by acquire', async () => {
  const lock = client.lock(fresh())
  const same = client.lock(lock.name)
  await lock.using(async outer => {
    await same.using(async inner => {
      assert.equal(inner.owner, outer.owner)
      const bare = await lock.acquire({ wait: 0 })
      assert.deepEqual([bare.count, lock.count, await call('HGET', lock.name, outer.owner)], [3, 3, '3'])
      await bare.release()
      assert.equal((await lock.tryAcquire()).count, 3)
      await lock.release()
    })
    assert.equal(outer.count, 1)
  })
  assert.equal(await call('EXISTS', lock.name), 0)
})

test('another lock inside a scope is nobody\'s yet, another scope is another owner', async () => {
  const [a, b] = [client.lock(fresh()), client.lock(fresh())]
  await a.using(async () => {
    const held = await b.acquire()
    assert.equal(await b.tryAcquire(), null)
    await held.release()
  })
  let inside = 0
  await Promise.all(Array.from({ length: 20 }, () => a.using(async () => {
    assert.equal(++inside, 1)
    await b.using(() => null)
    inside--
  })))
})

test('a scope of one client is none of another', async () => {
  const name = fresh()
  await client.lock(name).using(async () => {
    assert.equal(await other.lock(name).tryAcquire(), null)
  })
})

test('a context that escaped from a scope is nobody', async () => {
  const lock = client.lock(fresh())
  let escaped
  await lock.using(() => {
    escaped = new AsyncResource('escaped')
  })
  await escaped.runInAsyncScope(async () => {
    assert.deepEqual([lock.held(), lock.count], [false, 0])
    await assert.rejects(lock.release(), NotOwner)
    const held = await lock.acquire()
    assert.equal(await lock.tryAcquire(), null)
    await held.release()
  })
})

test('a scope closes with its outermost release', async () => {
  const lock = client.lock(fresh())
  await lock.using(async held => {
    await held.release()
    assert.equal(lock.held(), false)
    const own = await lock.acquire()
    assert.equal(await lock.tryAcquire(), null)
    await own.release()
  })
})

test('lock.release in a scope releases the innermost level', async () => {
  const lock = client.lock(fresh())
  await lock.using(async held => {
    await lock.acquire()
    await lock.release()
    assert.equal(held.count, 1)
  })
})

test('the body\'s error goes on', async () => {
  const lock = client.lock(fresh())
  const mistake = new Error('mine')
  await assert.rejects(lock.using(() => { throw mistake }), error => error === mistake && !('lockLost' in error))
  await assert.rejects(lock.using(() => Promise.reject(5)), error => error === 5)
  assert.equal(await lock.locked(), false)
})

test('leaving after a loss rejects, unless the body threw', async () => {
  const lock = client.lock(fresh())
  const lose = async held => {
    await call('DEL', lock.name)
    await new Promise(resolve => held.onLost(resolve))
  }
  await assert.rejects(lock.using(lose), LockLost)
  await assert.rejects(
    lock.using(async held => {
      await lose(held)
      throw new TypeError('mine')
    }),
    error => error instanceof TypeError && error.lockLost instanceof LockLost,
  )
  await assert.rejects(
    lock.using(async held => {
      await lose(held)
      throw Object.freeze(new TypeError('frozen'))
    }),
    TypeError,
  )
})

test('an acquire inside a scope whose lock was lost says so', async () => {
  const lock = client.lock(fresh())
  await assert.rejects(
    lock.using(async held => {
      await call('DEL', lock.name)
      await new Promise(resolve => held.onLost(resolve))
      await assert.rejects(lock.acquire({ wait: 1000 }), LockLost)
    }),
    LockLost,
  )
  await (await lock.acquire()).release()
})

test('using waits no longer than it is told', async () => {
  const lock = client.lock(fresh())
  const held = await lock.acquire()
  await assert.rejects(lock.using(() => assert.fail('never'), { wait: 20 }), LockTimeout)
  await assert.rejects(lock.using(), InvalidOption)
  await held.release()
})

test('locked wraps a function', async () => {
  const seen = []
  const ship = client.locked(
    order => `order:${order.id}:${process.pid}`,
    async function (order) {
      seen.push(await call('EXISTS', `order:${order.id}:${process.pid}`))
      return [this, order.id]
    },
    { wait: 1000 },
  )
  assert.deepEqual(await ship.call('me', { id: 7 }), ['me', 7])
  assert.deepEqual(seen, [1])
  const fixed = client.locked(fresh(), function named() { return 1 })
  assert.equal(fixed.name, 'named')
  assert.equal(await fixed(), 1)
  for (const body of [undefined, 5, {}, function* () {}, async function* () {}]) {
    await assert.rejects(client.lock('g').using(body), InvalidOption)
  }
  assert.throws(() => client.locked('g', function* () {}), InvalidOption)
  assert.throws(() => client.locked('g', async function* () {}), InvalidOption)
  assert.throws(() => client.locked('g'), InvalidOption)
})

test('a leaked inner level does not outlive its scope once its handle is gone', async t => {
  const { runInNewContext } = await import('node:vm')
  const { setFlagsFromString } = await import('node:v8')
  setFlagsFromString('--expose-gc')
  const gc = runInNewContext('gc')
  const lock = client.lock(fresh())
  await lock.using(async () => { await lock.acquire() })
  t.diagnostic('the level is still there')
  await until(async () => {
    gc()
    return !(await lock.locked())
  }, 3000)
})

// L4, L5, F33: an abort, a time-out or a close at every point of a wish. The link is slow, so that each point has its
// moment: a request travels 4 ms, a reply 4 ms. Nothing may stay behind, nothing may count twice, nobody may wait.
import assert from 'node:assert/strict'
import { after, test } from 'node:test'

import { Closed, LockLost, LockTimeout, NotOwner, Unreachable, connect } from 'bandog'
import { fresh, redis, sleep, until } from './redis.mjs'
import { summary } from './support/figures.mjs'
import { takeAs, freeAs } from './support/lease.mjs'
import { proxy } from './support/proxy.mjs'

const { url, port, call } = await redis()
const wire = await proxy(port)
const client = connect(wire.url, { watchdog: 20_000 })
const direct = connect(url)
await wire.tell('delay up 4')
await wire.tell('delay down 4')
after(async () => {
  await wire.tell('pass')
  await Promise.all([client.close(), direct.close()])
})

const LATE = 50
const slow = []
/** Settles `promise` after an abort of `controller` in `span` ms; the time from the abort to the answer is noted. */
async function abortIn(span, controller, promise) {
  let [settled, abortedAt] = [false, 0]
  const outcome = promise.then(value => ({ value }), error => ({ error })).finally(() => {
    if (abortedAt) slow.push(performance.now() - abortedAt)
    settled = true
  })
  if (span > 0) await Promise.race([pause(span), outcome])
  if (!settled) {
    abortedAt = performance.now()
    controller.abort()
  }
  const result = await outcome
  if (result.error) assert.equal(result.error.name, 'AbortError')
  return result
}

// Timers of whole milliseconds would hit the same points again and again.
async function pause(span) {
  const end = performance.now() + span
  if (span > 3) await sleep(Math.floor(span) - 2)
  while (performance.now() < end) await new Promise(resolve => setImmediate(resolve))
}

/** Runs `body` for `rounds` points in turn, a dozen at a time. */
async function sweep(rounds, body, lanes = 12) {
  let next = 0
  await Promise.all(Array.from({ length: lanes }, async () => {
    while (next < rounds) await body(next++)
  }))
}

async function clean(names) {
  await until(async () => (await call('EXISTS', ...names)) === 0, 4000)
    .catch(async () => assert.deepEqual((await Promise.all(names.map(name => call('EXISTS', name).then(n => n && name)))).filter(Boolean), [], 'orphans'))
}

function judge(t, counts) {
  t.diagnostic(`${JSON.stringify(counts)}; abort to answer: ${summary(slow)}`)
  assert.ok(Math.max(...slow.splice(0)) <= LATE)
  for (const [what, count] of Object.entries(counts)) assert.ok(count > 0, `the sweep never met: ${what}`)
}

test('f33: acquire of a free lock, aborted at every point', async t => {
  const counts = { granted: 0, aborted: 0 }
  const names = Array.from({ length: 600 }, () => fresh())
  await sweep(names.length, async round => {
    const controller = new AbortController()
    const { value, error } = await abortIn((round % 200) * 0.07, controller, client.lock(names[round]).acquire({ signal: controller.signal }))
    counts[error ? 'aborted' : 'granted']++
    if (value) {
      assert.equal(await call('HGET', names[round], value.owner), '1')
      await value.release()
    }
  })
  await clean(names)
  judge(t, counts)
})

test('f33: the first acquire of a client, aborted from the connect to the grant', async t => {
  const counts = { granted: 0, aborted: 0 }
  const names = Array.from({ length: 120 }, () => fresh())
  await sweep(names.length, async round => {
    const lone = connect(wire.url)
    const controller = new AbortController()
    const { value, error } = await abortIn((round % 60) * 0.6, controller, lone.lock(names[round]).acquire({ signal: controller.signal }))
    counts[error ? 'aborted' : 'granted']++
    await value?.release()
    await lone.close()
  }, 6)
  await clean(names)
  judge(t, counts)
})

test('f33: a wait that is granted, aborted at every point around it', async t => {
  const counts = { granted: 0, aborted: 0 }
  const names = Array.from({ length: 240 }, () => fresh())
  await sweep(names.length, async round => {
    const name = names[round]
    await takeAs(call, name, 10_000)
    const controller = new AbortController()
    const waiting = client.lock(name).acquire({ signal: controller.signal })
    setTimeout(() => freeAs(call, name), 20 + round % 7)
    const { value, error } = await abortIn((round % 120) * 0.5, controller, waiting)
    counts[error ? 'aborted' : 'granted']++
    await value?.release()
  })
  await sleep(60)
  await clean(names)
  judge(t, counts)
})

test('f33: a re-entry aborted at every point counts once or not at all', async t => {
  const counts = { granted: 0, aborted: 0 }
  const names = Array.from({ length: 240 }, () => fresh())
  await sweep(names.length, async round => {
    const lock = client.lock(names[round])
    await lock.using(async held => {
      const controller = new AbortController()
      const { value, error } = await abortIn((round % 80) * 0.2, controller, lock.acquire({ signal: controller.signal }))
      counts[error ? 'aborted' : 'granted']++
      assert.equal(lock.count, error ? 1 : 2)
      if (value) await value.release()
      assert.equal(held.count, 1)
      // A level that was given up goes by a release of its own, behind the re-entry.
      await until(async () => (await call('HGET', lock.name, held.owner)) === '1', 1000)
    })
  })
  await clean(names)
  judge(t, counts)
})

test('f33: using, aborted at every point: the body runs under the lock or not at all', async t => {
  const counts = { ran: 0, aborted: 0 }
  const names = Array.from({ length: 240 }, () => fresh())
  await sweep(names.length, async round => {
    const controller = new AbortController()
    const { error } = await abortIn((round % 80) * 0.2, controller, client.lock(names[round]).using(async held => {
      assert.equal(await call('HGET', names[round], held.owner), '1')
      return true
    }, { signal: controller.signal }))
    counts[error ? 'aborted' : 'ran']++
  })
  await clean(names)
  // The body may run for long after an abort: it is not what is measured here.
  slow.splice(0, Infinity, 0)
  judge(t, counts)
})

test('l5: time-outs at every point around a release', async t => {
  const counts = { granted: 0, late: 0 }
  const names = Array.from({ length: 240 }, () => fresh())
  const over = []
  await sweep(names.length, async round => {
    const name = names[round]
    await takeAs(call, name, 10_000)
    const wait = 1 + round % 60
    const began = performance.now()
    setTimeout(() => freeAs(call, name), 20)
    try {
      const held = await client.lock(name).acquire({ wait })
      counts.granted++
      await held.release()
    } catch (error) {
      assert.ok(error instanceof LockTimeout || error instanceof Unreachable, String(error))
      over.push(performance.now() - began - wait)
      counts.late++
    }
  })
  await sleep(60)
  await clean(names)
  t.diagnostic(`over by ${summary(over)}`)
  assert.ok(Math.max(...over) <= 50)
  slow.push(0)
  judge(t, counts)
})

test('close at every point of acquires, waits and releases', async t => {
  const counts = { granted: 0, closed: 0 }
  const names = []
  await sweep(90, async round => {
    const lone = connect(wire.url)
    const [free, busy, mine] = [fresh(), fresh(), fresh()]
    names.push(free, busy, mine)
    const held = await lone.lock(mine).acquire()
    await takeAs(call, busy, 2000)
    const all = [lone.lock(free).acquire(), lone.lock(busy).acquire(), held.release()]
    setTimeout(() => freeAs(call, busy), 15)
    const settled = Promise.allSettled(all)
    await pause((round % 45) * 0.8)
    const began = performance.now()
    await lone.close()
    slow.push(0)
    const took = performance.now() - began
    assert.ok(took < 1000, `close in round ${round} took ${took} ms`)
    for (const { status, reason } of await settled) {
      counts[status === 'fulfilled' ? 'granted' : 'closed']++
      if (reason) assert.ok(reason instanceof Closed || reason instanceof NotOwner, String(reason))
    }
  }, 6)
  await clean(names)
  judge(t, counts)
})

test('releases of one hold, twice at once, at every distance', async () => {
  const names = Array.from({ length: 60 }, () => fresh())
  await sweep(names.length, async round => {
    const held = await client.lock(names[round]).acquire()
    const first = held.release()
    await pause(round * 0.2)
    const second = held.release().then(() => {}, error => assert.ok(error instanceof NotOwner && !(error instanceof LockLost), String(error)))
    await Promise.all([first, second])
    assert.equal(await call('EXISTS', names[round]), 0)
  })
})

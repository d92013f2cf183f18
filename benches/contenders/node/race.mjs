// The scenarios of the race, the same for every Node contender: <program> <scenario> <url> <json>.
//
// A contender says how its library is used:
//   open(url, lease) -> a party: one client of its own, whose locks live for `lease` ms
//     lock(name)     -> acquire() -> release()             a short section, as the library's users write it
//     keep(name)     -> lost()                             taken for long, renewed by the library itself
//     key(name)      -> the key in Redis
//   absent: { scenario: reason } what the library cannot do
import { setTimeout as sleep } from 'node:timers/promises'

const LEASE = 30_000
const FIRST = 200

const percentiles = ms => {
  ms.sort((a, b) => a - b)
  return { p50_us: ms[ms.length >> 1] * 1000, p99_us: ms[Math.floor(ms.length * 0.99)] * 1000 }
}

async function pairs(lock, count, took) {
  for (let n = 0; n < count; n++) {
    const start = performance.now()
    const release = await lock()
    await release()
    took?.push(performance.now() - start)
  }
}

async function pair(open, url, { pairs: count, name }) {
  const lock = open(url, LEASE).lock(name)
  await pairs(lock, Math.max(FIRST, count / 10))
  const took = []
  await pairs(lock, count, took)
  return percentiles(took)
}

async function storm(open, url, { inflight, seconds, name }) {
  const party = open(url, LEASE)
  const locks = Array.from({ length: inflight }, (_, k) => party.lock(`${name}:${k}`))
  const run = async span => {
    let done = 0
    const end = performance.now() + span
    await Promise.all(locks.map(async lock => {
      while (performance.now() < end) {
        const release = await lock()
        await release()
        if (performance.now() < end) done++
      }
    }))
    return done / span * 1000
  }
  await pairs(locks[0], FIRST)
  await run(seconds * 100)
  return { pairs_per_s: await run(seconds * 1000) }
}

async function handoff(open, url, { rounds, name }) {
  const [one, two] = [open(url, LEASE).lock(name), open(url, LEASE).lock(name)]
  const round = async () => {
    const release = await one()
    const waiter = two().then(async give => {
      const got = performance.now()
      await give()
      return got
    })
    // Not always the same: whoever polls is to be met at any point of its interval.
    await sleep(20 + Math.random() * 100)
    const left = performance.now()
    await release()
    return await waiter - left
  }
  await pairs(one, FIRST)
  await pairs(two, FIRST)
  for (let n = 0; n < rounds / 10; n++) await round()
  const took = []
  for (let n = 0; n < rounds; n++) took.push(await round())
  return percentiles(took)
}

async function contend(open, url, { tasks, hold_ms, start_at, seconds, name }) {
  const party = open(url, LEASE)
  await pairs(party.lock(`${name}:first:${process.pid}`), FIRST)
  const end = (start_at + seconds) * 1000
  if (Date.now() > start_at * 1000) throw new Error('ready only after the start')
  await sleep(start_at * 1000 - Date.now())
  const lanes = Array.from({ length: tasks }, () => ({ acquired: 0, longest: 0, asked: null, held: 0, since: null }))
  const runs = lanes.map(async lane => {
    const lock = party.lock(name)
    while (Date.now() < end) {
      lane.asked = Date.now()
      const release = await lock()
      const got = Date.now()
      if (got < end) {
        lane.acquired++
        lane.longest = Math.max(lane.longest, got - lane.asked)
        lane.asked = null
        lane.since = performance.now()
        await sleep(hold_ms)
        lane.held += performance.now() - lane.since
        lane.since = null
      }
      await release()
    }
  })
  await sleep(end - Date.now())
  // A wait that the end cuts off was a wait, too.
  for (const lane of lanes) if (lane.asked) lane.longest = Math.max(lane.longest, end - lane.asked)
  // So was a hold. A timer overshoots by up to a millisecond, so that holds are told as long as they were.
  for (const lane of lanes) if (lane.since) lane.held += performance.now() - lane.since
  const answer = {
    acquired: lanes.map(lane => lane.acquired),
    longest_wait_ms: lanes.map(lane => lane.longest),
    held_ms: lanes.map(lane => lane.held),
  }
  // Time to release; but a waiter that missed its message may sleep for long.
  await Promise.race([Promise.all(runs), sleep(1000)])
  return answer
}

async function held(open, url, { locks, lease_ms, seconds, name }) {
  const party = open(url, lease_ms)
  const names = Array.from({ length: locks }, (_, n) => `${name}:${n}`)
  await pairs(party.lock(`${name}:first`), Math.max(FIRST, Math.min(locks / 10, 2000)))
  const before = process.memoryUsage.rss()
  const start = performance.now()
  const kept = []
  // A thousand at a time, as a busy service would.
  for (let n = 0; n < locks; n += 1000) kept.push(...await Promise.all(names.slice(n, n + 1000).map(party.keep)))
  const took_s = (performance.now() - start) / 1000
  const cpu = process.cpuUsage()
  await sleep(seconds * 1000)
  const { user, system } = process.cpuUsage(cpu)
  const rss_bytes = process.memoryUsage.rss() - before
  const flagged = kept.filter(lost => lost()).length
  // Not every library notices a loss: the server does.
  const { Redis } = await import('ioredis')
  const redis = new Redis(url)
  let there = 0
  for (let n = 0; n < locks; n += 1000) there += await redis.exists(names.slice(n, n + 1000).map(party.key))
  return { took_s, lost: Math.max(flagged, locks - there), cpu_s: (user + system) / 1e6, rss_bytes }
}

async function blocked(open, url, { lease_ms, name }) {
  const party = open(url, lease_ms)
  await pairs(party.lock(`${name}:first`), FIRST)
  await party.keep(name)
  console.log(JSON.stringify({ ready: true, key: party.key(name) }))
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 3 * lease_ms)
  return { done: true }
}

export async function race(open, absent = {}) {
  const [scenario, url, json] = process.argv.slice(2)
  const scenarios = { pair, storm, handoff, contend, held, blocked }
  const run = () => scenarios[scenario](open, url, JSON.parse(json))
  console.log(JSON.stringify(absent[scenario] ? { unsupported: absent[scenario] } : await run()))
  process.exit(0)
}

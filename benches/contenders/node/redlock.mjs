// redlock over ioredis. `using` renews 500 ms before the end (its default); a short section is acquire and release,
// which costs it less. A waiter asks again every 200 ms, give or take 100 (its default), here for as long as it takes.
import { Redis } from 'ioredis'
import Redlock from 'redlock'
import { race } from './race.mjs'

await race((url, lease) => {
  // Below a lease of a second it refuses its own default.
  const automaticExtensionThreshold = Math.min(500, lease / 2)
  const redlock = new Redlock([new Redis(url)], { retryCount: -1, automaticExtensionThreshold })
  return {
    lock: name => async () => {
      const lock = await redlock.acquire([name], lease)
      return () => lock.release()
    },
    keep: name => new Promise((ready, failed) => {
      redlock.using([name], lease, signal => {
        ready(() => signal.aborted)
        return new Promise(() => {})
      }).catch(failed)
    }),
    key: name => name,
  }
})

// redlock-universal over ioredis, in its standard mode. `using` renews at 0.8 of the lease; a short section is acquire
// and release, which costs it less. A waiter asks again every 100 ms (its default), here for as long as it takes.
import { Redis } from 'ioredis'
import { createLock, IoredisAdapter } from 'redlock-universal'
import { race } from './race.mjs'

await race((url, ttl) => {
  const adapter = new IoredisAdapter(new Redis(url))
  const make = key => createLock({ adapter, key, ttl, retryAttempts: Number.MAX_SAFE_INTEGER })
  return {
    lock(name) {
      const lock = make(name)
      return async () => {
        const handle = await lock.acquire()
        return () => lock.release(handle)
      }
    },
    keep: name => new Promise((ready, failed) => {
      make(name).using(signal => {
        ready(() => signal.aborted)
        return new Promise(() => {})
      }).catch(failed)
    }),
    key: name => name,
  }
})

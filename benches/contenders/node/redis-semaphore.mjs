// redis-semaphore over ioredis. A timer of each lock renews at 0.8 of the lease (its default); a waiter asks again
// every 10 ms (its default), here for as long as it takes.
import { Redis } from 'ioredis'
import { Mutex } from 'redis-semaphore'
import { race } from './race.mjs'

await race((url, lease) => {
  const redis = new Redis(url)
  const options = { lockTimeout: lease, acquireTimeout: Infinity, onLockLost() {} }
  return {
    // A new mutex for each section, as its README has it.
    lock: name => async () => {
      const mutex = new Mutex(redis, name, options)
      await mutex.acquire()
      return () => mutex.release()
    },
    async keep(name) {
      const mutex = new Mutex(redis, name, options)
      await mutex.acquire()
      return () => !mutex.isAcquired
    },
    key: name => `mutex:${name}`,
  }
})

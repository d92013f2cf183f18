// node-redisson over ioredis. A timer of each lock renews at a third of the lease; a waiter is woken by a message, or
// when the lease that it was told has run out.
import { Redisson } from 'node-redisson'
import { race } from './race.mjs'

await race((url, lease) => {
  const { hostname: host, port } = new URL(url)
  const options = { host, port: Number(port) }
  const redisson = new Redisson({ redis: { options }, lockWatchdogTimeout: BigInt(lease) })
  return {
    // The owner is the lock object: each task has its own.
    lock(name) {
      const lock = redisson.getLock(name)
      return async () => {
        await lock.lock()
        return () => lock.unlock()
      }
    },
    async keep(name) {
      await redisson.getLock(name).lock()
      return () => false
    },
    key: name => name,
  }
})

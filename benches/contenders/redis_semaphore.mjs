// redis-semaphore, over ioredis.
import { Redis } from 'ioredis'
import { Mutex } from 'redis-semaphore'
import { host, port, measure } from './common.mjs'

const redis = new Redis(port, host)
await measure(async () => {
  const mutex = new Mutex(redis, 'bench:redis-semaphore', { lockTimeout: 30000 })
  await mutex.acquire()
  await mutex.release()
})
await redis.quit()

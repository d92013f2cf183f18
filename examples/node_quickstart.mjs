// One lock, three ways to hold it. Run two of these at once: node examples/node_quickstart.mjs
import { LockTimeout, lock } from 'bandog'

const order = lock('order_lock')

// The plain way. It waits for whoever has the lock: a Java, Python or Node process.
const held = await order.acquire()
try {
  console.log('held by', held.owner)
  held.check() // throws if the lock was lost: call it before what must not run without the lock
} finally {
  await held.release()
}

// The same with a function, in which the same lock may be taken again.
const count = await order.using(async () => order.using(inner => inner.count))
console.log('levels inside', count)

// Not for ever, and no longer than somebody cares for the answer.
try {
  const late = await order.acquire({ wait: 5000, lease: 10_000, signal: AbortSignal.timeout(8000) })
  await late.release()
} catch (error) {
  if (!(error instanceof LockTimeout)) throw error
  console.log('somebody else is at it')
}

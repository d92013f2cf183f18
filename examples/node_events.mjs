// Tells what happens to one lock, and what a holder learns when it is taken away.
import { connect } from 'bandog'

const client = connect(undefined, { watchdog: 3000 })
const lock = client.lock('order_lock')

const listening = (async () => {
  for await (const event of lock.events()) console.log('event', event)
})()

const held = await lock.acquire()
held.onLost(error => console.log('told:', error.message))
const work = new Promise(resolve => held.signal.addEventListener('abort', resolve, { once: true }))

setTimeout(() => lock.forceRelease(), 1500)
await work
await held.release().catch(error => console.log('release:', error.code))

await client.close()
await listening

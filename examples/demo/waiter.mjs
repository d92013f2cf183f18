// Waits for `order_lock`, then works under it until somebody stops this process.
//
// node waiter.mjs URL
import { setTimeout } from 'node:timers/promises'
import { connect } from 'bandog'

const report = (event, text) =>
  console.log(JSON.stringify({ at: Number(process.hrtime.bigint()) / 1e9, event, text }))

const client = connect(process.argv[2], { watchdog: 6000 })
report('waiting', 'asks for order_lock')
const held = await client.lock('order_lock').acquire()
report('held', 'has order_lock')
try {
  await setTimeout(60_000, undefined, { signal: held.signal })
} finally {
  await held.release()
}

// Bandog from Node.
import { connect } from '../../bindings-node/lib/index.mjs'
import { host, port, measure } from './common.mjs'

const client = connect(`redis://${host}:${port}`)
const lock = client.lock('bench:bandog')
await measure(async () => {
  const held = await lock.acquire()
  await held.release()
})
await client.close()

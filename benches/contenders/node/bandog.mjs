// Bandog. The watchdog renews at a third of the lease; a waiter is woken by a message.
import { connect } from '../../../bindings-node/lib/index.mjs'
import { race } from './race.mjs'

await race((url, lease) => {
  const client = connect(url, { watchdog: lease })
  return {
    lock(name) {
      const lock = client.lock(name)
      return async () => {
        const held = await lock.acquire()
        return () => held.release()
      }
    },
    async keep(name) {
      const held = await client.lock(name).acquire()
      return () => !held.valid
    },
    key: name => name,
  }
})

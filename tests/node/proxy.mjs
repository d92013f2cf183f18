// A road to the server that a test can stall, cut, or make swallow what comes back.
import { once } from 'node:events'
import net from 'node:net'
import { after } from 'node:test'

export async function proxy(port) {
  const pairs = new Set()
  let [stalled, deaf] = [false, false]
  const server = net.createServer(near => {
    const far = net.connect(port, '127.0.0.1')
    const pair = { near, far }
    pairs.add(pair)
    for (const socket of [near, far]) {
      socket.setNoDelay(true)
      socket.on('error', () => {})
      socket.on('close', () => { pairs.delete(pair); near.destroy(); far.destroy() })
      if (stalled) socket.pause()
    }
    near.on('data', chunk => far.write(chunk))
    far.on('data', chunk => { if (!deaf) near.write(chunk) })
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  after(() => { server.close(); for (const { near } of pairs) near.destroy() })
  const each = what => { for (const pair of pairs) for (const socket of [pair.near, pair.far]) what(socket) }
  return {
    url: `redis://127.0.0.1:${server.address().port}`,
    /** Nothing passes either way until `resume`. */
    stall() { stalled = true; each(socket => socket.pause()) },
    resume() { stalled = false; each(socket => socket.resume()) },
    /** Requests arrive, replies do not. */
    swallow(on) { deaf = on },
    /** Every connection breaks now. */
    cut() { for (const { near, far } of pairs) { near.resetAndDestroy(); far.destroy() } },
  }
}

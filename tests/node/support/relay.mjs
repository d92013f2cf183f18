// A hop in front of a server that counts the pieces in which a client's bytes come. It runs in a thread of its own, so
// that it reads while the client writes.
import { once } from 'node:events'
import { Worker } from 'node:worker_threads'

const body = `
  const net = require('node:net')
  const { parentPort, workerData } = require('node:worker_threads')
  let up = 0
  const relay = net.createServer(socket => {
    const server = net.connect(workerData.port, '127.0.0.1').setNoDelay(true)
    socket.setNoDelay(true)
    socket.on('data', () => { up++ })
    for (const end of [socket, server]) end.on('error', () => {})
    socket.pipe(server).pipe(socket)
  }).listen(0, '127.0.0.1', () => parentPort.postMessage(relay.address().port))
  parentPort.on('message', () => parentPort.postMessage({ up }))`

/** The hop in front of `port`. */
export async function relay(port) {
  const thread = new Worker(body, { eval: true, workerData: { port } })
  const [listening] = await once(thread, 'message')
  return {
    port: listening,
    async count() {
      const answer = once(thread, 'message')
      thread.postMessage('count')
      return (await answer)[0]
    },
    stop: () => thread.terminate(),
  }
}

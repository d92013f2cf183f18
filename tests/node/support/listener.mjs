// A subscriber that is none of ours: what a Redisson client would hear.
import { once } from 'node:events'
import net from 'node:net'
import { after } from 'node:test'

/** Collects the messages of one channel. `flush` waits until everything published so far has come. */
export async function listener(port, channel, call) {
  const socket = net.connect(port, '127.0.0.1').setEncoding('utf8').on('error', () => {})
  await once(socket, 'connect')
  const words = ['SUBSCRIBE', channel, `${channel}#flush`]
  socket.write(`*${words.length}\r\n${words.map(word => `$${Buffer.byteLength(word)}\r\n${word}\r\n`).join('')}`)
  const messages = []
  let text = ''
  let [ready, flushed] = [() => {}, () => {}]
  const subscribed = new Promise(resolve => { ready = resolve })
  socket.on('data', chunk => {
    text += chunk
    for (;;) {
      const found = /^\*3\r\n\$\d+\r\n(\w+)\r\n\$\d+\r\n([^\r]*)\r\n(?::(\d+)|\$\d+\r\n([^\r]*))\r\n/.exec(text)
      if (!found) return
      text = text.slice(found[0].length)
      if (found[1] === 'subscribe' && found[3] === '2') ready()
      if (found[1] !== 'message') continue
      if (found[2] === channel) messages.push(found[4])
      else flushed()
    }
  })
  await subscribed
  after(() => socket.destroy())
  return {
    messages,
    flush: async () => {
      const done = new Promise(resolve => { flushed = resolve })
      await call('PUBLISH', `${channel}#flush`, 'x')
      await done
      return messages.splice(0)
    },
  }
}

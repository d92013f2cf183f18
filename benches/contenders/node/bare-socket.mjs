// No library: a bare net.Socket that sends the two EVALSHAs of a pair. What JavaScript itself costs.
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { connect } from 'node:net'
import { race } from './race.mjs'

const SCRIPTS = new URL('../../../core/src/scripts/', import.meta.url)
const text = (...files) => files.map(file => readFileSync(new URL(file, SCRIPTS), 'utf8')).join('')
const acquire = text('shape.lua', 'acquire.lua')
const release = text('release.lua')
const sha1 = script => createHash('sha1').update(script).digest('hex')
const [acquireHash, releaseHash] = [sha1(acquire), sha1(release)]
const OWNER = '285475da-9152-4c83-822a-67ee2f116a79:52'

const command = (...parts) =>
  `*${parts.length}\r\n` + parts.map(part => `$${Buffer.byteLength(part)}\r\n${part}\r\n`).join('')

const absent = 'two scripts on a socket: nothing waits, nothing renews'
await race((url, lease) => {
  const { hostname, port } = new URL(url)
  const socket = connect({ host: hostname, port, noDelay: true })
  const waiting = []
  let first = 0
  let rest = ''
  socket.setEncoding('latin1').on('data', bytes => {
    const lines = (rest + bytes).split('\r\n')
    rest = lines.pop()
    for (const line of lines) {
      // Every answer ends with an integer, or with a hash when a script was loaded.
      if (line[0] === '-') throw new Error(line)
      if (line[0] === '*' || line[0] === '$') continue
      waiting[first++](line)
      if (first === waiting.length) waiting.length = first = 0
    }
  })
  // What one turn asks for leaves in one write.
  const call = bytes => new Promise(done => {
    if (socket.writableCorked === 0) {
      socket.cork()
      process.nextTick(() => socket.uncork())
    }
    socket.write(bytes, 'latin1')
    waiting.push(done)
  })
  const loaded = Promise.all([acquire, release].map(script => call(command('SCRIPT', 'LOAD', script))))
  const check = (got, wanted) => { if (got !== wanted) throw new Error(`${got}, not ${wanted}`) }
  return {
    lock(name) {
      const take = command('EVALSHA', acquireHash, '1', name, `${lease}`, OWNER, '1', '1', `${lease}`)
      const channel = `redisson_lock__channel:{${name}}`
      const give = command('EVALSHA', releaseHash, '2', name, channel, OWNER, '0', '0', 'PUBLISH')
      let ready = false
      return async () => {
        if (!ready) ready = Boolean(await loaded)
        check(await call(take), ':1')
        return async () => check(await call(give), ':0')
      }
    },
  }
}, { handoff: absent, contend: absent, held: absent, blocked: absent })

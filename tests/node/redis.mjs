// A Redis server for one test file, and a raw connection to look at it with.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import net from 'node:net'
import { after } from 'node:test'

/** Starts a server of its own on a free port, or uses the one of BANDOG_TEST_URL. Ends with the file. */
export async function redis(...extra) {
  const given = process.env.BANDOG_TEST_URL
  if (given && extra.length === 0) {
    const { hostname, port: text } = new URL(given)
    const port = Number(text || 6379)
    const raw = await Raw.connect(port, hostname)
    after(() => raw.end())
    return { url: given, port, raw, call: (...words) => raw.call(...words) }
  }
  const port = await freePort()
  const server = spawn(
    process.env.REDIS_SERVER ?? 'redis-server',
    ['--port', port, '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no', '--enable-debug-command', 'yes', ...extra],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  )
  for await (const chunk of server.stdout) if (String(chunk).includes('Ready to accept connections')) break
  server.stdout.destroy()
  const raw = await Raw.connect(port)
  const stop = async () => {
    raw.end()
    if (server.exitCode === null && server.signalCode === null && server.kill('SIGKILL')) await once(server, 'exit')
  }
  after(stop)
  process.once('exit', () => server.kill('SIGKILL'))
  return { url: `redis://127.0.0.1:${port}`, port, raw, server, stop, call: (...words) => raw.call(...words) }
}

/** A port of this machine that nobody has. */
export async function freePort() {
  const probe = net.createServer().listen(0, '127.0.0.1')
  await once(probe, 'listening')
  const { port } = probe.address()
  probe.close()
  await once(probe, 'close')
  return port
}

let numbers = 0
/** A lock name that no other test has. */
export const fresh = (text = 'lock') => `${text}:${process.pid}:${++numbers}`

/** Waits until `look` gives something true. For states of the server, which tell nobody when they change. */
export async function until(look, within = 5000) {
  const end = performance.now() + within
  for (;;) {
    const seen = await look()
    if (seen) return seen
    if (performance.now() > end) throw new Error(`not within ${within} ms: ${look}`)
    await new Promise(resolve => setTimeout(resolve, 5))
  }
}

export const sleep = span => new Promise(resolve => setTimeout(resolve, span))

/** Keeps the event loop busy. */
export function block(span) {
  const end = performance.now() + span
  while (performance.now() < end);
}

/** Just enough of the protocol to ask a server what it has. */
export class Raw {
  #socket
  #waiting = []
  #buffer = ''

  static async connect(port, host = '127.0.0.1') {
    const raw = new Raw()
    raw.#socket = net.connect(port, host).setEncoding('latin1').on('data', chunk => raw.#read(chunk)).on('error', () => {})
    await once(raw.#socket, 'connect')
    return raw
  }

  call(...words) {
    const texts = words.map(String)
    this.#socket.write(`*${texts.length}\r\n${texts.map(text => `$${Buffer.byteLength(text)}\r\n${text}\r\n`).join('')}`)
    return new Promise((resolve, reject) => this.#waiting.push({ resolve, reject }))
  }

  end() {
    this.#socket.destroy()
  }

  #read(chunk) {
    this.#buffer += chunk
    for (;;) {
      const step = parse(this.#buffer, 0)
      if (step === undefined) return
      this.#buffer = this.#buffer.slice(step.at)
      const { resolve, reject } = this.#waiting.shift()
      if (step.value instanceof Error) reject(step.value)
      else resolve(step.value)
    }
  }
}

function parse(text, from) {
  const end = text.indexOf('\r\n', from)
  if (end < 0) return undefined
  const [kind, rest, at] = [text[from], text.slice(from + 1, end), end + 2]
  if (kind === '+') return { value: rest, at }
  if (kind === '-') return { value: new Error(rest), at }
  if (kind === ':') return { value: Number(rest), at }
  const size = Number(rest)
  if (size < 0) return { value: null, at }
  if (kind === '$') {
    return text.length < at + size + 2 ? undefined : { value: text.slice(at, at + size), at: at + size + 2 }
  }
  const list = []
  let next = at
  while (list.length < size) {
    const item = parse(text, next)
    if (item === undefined) return undefined
    list.push(item.value)
    next = item.at
  }
  return { value: list, at: next }
}

// The fault proxy of tests/rust, driven by lines on its control port (the lines: tests/rust/src/proxy/orders.rs).
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import net from 'node:net'
import path from 'node:path'
import readline from 'node:readline'
import { after } from 'node:test'

const built = path.join(import.meta.dirname, '../../..', process.env.CARGO_TARGET_DIR ?? 'target', 'debug/bandog-proxy')

/** A proxy in front of the server at `port`. Ends with the file. */
export async function proxy(port) {
  const program = process.env.BANDOG_PROXY ?? built
  if (!existsSync(program)) {
    throw new Error('the fault proxy is not built: cargo build -p bandog-harness --bin bandog-proxy')
  }
  const child = spawn(program, [`127.0.0.1:${port}`, '--until-eof'], { stdio: ['pipe', 'pipe', 'inherit'] })
  const [line] = await once(readline.createInterface({ input: child.stdout }), 'line')
  const ports = JSON.parse(line)
  const control = net.connect(ports.control, '127.0.0.1')
  control.setNoDelay(true)
  const asked = []
  readline.createInterface({ input: control }).on('line', answer => asked.shift()(answer))
  await once(control, 'connect')

  const tell = async order => {
    const answer = new Promise(resolve => asked.push(resolve))
    control.write(`${order}\n`)
    const text = await answer
    if (text.startsWith('error ')) throw new Error(`${order}: ${text.slice(6)}`)
    return text.replace(/^ok ?/, '')
  }
  const stop = () => {
    control.destroy()
    child.stdin.end()
  }
  after(stop)
  return {
    url: `redis://127.0.0.1:${ports.port}`,
    port: ports.port,
    tell,
    count: async what => Number(await tell(`count ${what}`)),
    state: async () => JSON.parse(await tell('state')),
    /** Every connection is reset, and new ones are refused until `pass`. */
    cut: async () => {
      await tell('refuse')
      await tell('reset')
    },
    stop,
  }
}

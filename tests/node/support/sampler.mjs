// A worker that watches a lock from outside while the main thread is busy: what the server says of its key, and
// whether anybody else can have it.
import { Worker } from 'node:worker_threads'
import { once } from 'node:events'

const source = `
  const { parentPort, workerData } = require('node:worker_threads')
  const { connect } = require('bandog')
  ;(async () => {
    const { redis } = workerData
    const client = connect(workerData.url)
    const rival = client.lock(workerData.name)
    const { Raw } = await import(workerData.helper)
    const raw = await Raw.connect(workerData.port)
    const waiting = rival.acquire({ wait: workerData.span }).then(() => true, error => error.code !== 'timeout')
    let [least, looks] = [Infinity, 0]
    let over = false
    waiting.then(() => { over = true })
    parentPort.postMessage('up')
    while (!over) {
      least = Math.min(least, await raw.call('PTTL', workerData.name))
      looks++
      await new Promise(resolve => setTimeout(resolve, 5))
    }
    parentPort.postMessage({ least, looks, gotIn: await waiting })
    raw.end()
    await client.close()
  })()`

/** Watches `name` for `span` ms. Resolves, once it watches, to the promise of what it saw. */
export async function watch({ url, port, name, span }) {
  const helper = new URL('../redis.mjs', import.meta.url).href
  const worker = new Worker(source, { eval: true, workerData: { url, port, name, span, helper } })
  await once(worker, 'message')
  const seen = once(worker, 'message')
  return { seen: seen.then(([report]) => report) }
}

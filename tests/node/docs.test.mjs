// The JavaScript in README.md and docs/ runs as it stands there, and so do the examples.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { test } from 'node:test'
import { redis } from './redis.mjs'

const root = path.dirname(path.dirname(import.meta.dirname))
const docs = readdirSync(path.join(root, 'docs')).filter(name => name.endsWith('.md'))
const server = await redis()

/** Runs a program of the repository to its end, in which nothing goes wrong. */
async function runs(...words) {
  const env = { ...process.env, BANDOG_URL: server.url }
  const child = spawn(process.execPath, words, { cwd: root, env, stdio: ['ignore', 'pipe', 'pipe'] })
  let [printed, said] = ['', '']
  child.stdout.on('data', chunk => (printed += chunk))
  child.stderr.on('data', chunk => (said += chunk))
  const [exit] = await once(child, 'close', { signal: AbortSignal.timeout(30_000) })
  assert.equal(exit, 0, said)
  assert.equal(said, '')
  return printed
}

const examples = { 'node_events.mjs': /told: .*\nrelease: lock_lost/s, 'node_quickstart.mjs': /held by .*levels inside 2/s }

test('no example is forgotten', () => {
  const there = readdirSync(path.join(root, 'examples')).filter(name => name.endsWith('.mjs'))
  assert.deepEqual(there.sort(), Object.keys(examples))
})

for (const [name, prints] of Object.entries(examples)) {
  test(`examples/${name} runs and ends by itself`, async () => {
    assert.match(await runs(path.join('examples', name)), prints)
  })
}

for (const page of ['README.md', ...docs.map(name => path.join('docs', name))]) {
  const text = readFileSync(path.join(root, page), 'utf8')
  for (const { 1: code, index } of text.matchAll(/^```js\n(.*?)^```$/gms)) {
    test(`${page}:${text.slice(0, index).split('\n').length} runs and ends by itself`, async () => {
      await runs('--input-type=module', '-e', code)
    })
  }
}

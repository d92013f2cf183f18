// The JavaScript in README.md and docs/ runs as it stands there.
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

for (const page of ['README.md', ...docs.map(name => path.join('docs', name))]) {
  const text = readFileSync(path.join(root, page), 'utf8')
  for (const { 1: code, index } of text.matchAll(/^```js\n(.*?)^```$/gms)) {
    test(`${page}:${text.slice(0, index).split('\n').length} runs and ends by itself`, async () => {
      const env = { ...process.env, BANDOG_URL: server.url }
      const child = spawn(process.execPath, ['--input-type=module', '-e', code], { cwd: root, env })
      let said = ''
      child.stderr.on('data', chunk => (said += chunk))
      const [exit] = await once(child, 'close', { signal: AbortSignal.timeout(30_000) })
      assert.equal(exit, 0, said)
      assert.equal(said, '')
    })
  }
}

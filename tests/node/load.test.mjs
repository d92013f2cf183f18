import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { createRequire } from 'node:module'
import { test } from 'node:test'

import * as esm from 'bandog'

const cjs = createRequire(import.meta.url)('bandog')

test('import and require give the same things', () => {
  assert.deepEqual(Object.keys(esm).filter(name => name !== 'default').sort(), Object.keys(cjs).sort())
  for (const [name, value] of Object.entries(cjs)) assert.equal(esm[name], value, name)
  assert.equal(esm.default, cjs)
})

test('errors are a family', () => {
  const { LockError, LockLost, NotOwner } = esm
  const classes = Object.values(cjs).filter(value => value === LockError || value.prototype instanceof LockError)
  assert.equal(classes.length, 19)
  assert.ok(LockLost.prototype instanceof NotOwner)
  assert.ok(LockError.prototype instanceof Error)
  for (const type of classes) assert.equal(type.prototype.name, type.name)
})

test('only the library makes clients, locks and holds', () => {
  for (const type of [esm.Client, esm.Lock, esm.Hold, esm.Events]) assert.throws(() => new type())
  assert.throws(() => esm.Lock.prototype.acquire.call({}))
  assert.throws(() => Reflect.get(esm.Hold.prototype, 'valid', {}))
})

test('loading starts nothing and the default client follows the environment', () => {
  const ask = (env, source) => {
    const { BANDOG_URL: _, REDIS_URL: __, ...rest } = process.env
    const { status, stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', source], {
      cwd: import.meta.dirname, encoding: 'utf8', env: { ...rest, ...env },
    })
    assert.deepEqual([status, stderr], [0, ''])
    return stdout.trim()
  }
  assert.equal(ask({}, `
    import { readdirSync, readFileSync } from 'node:fs'
    const { connect, lock } = await import('bandog')
    connect().lock('a')
    lock('b')
    const names = readdirSync('/proc/self/task').map(id => readFileSync(\`/proc/self/task/\${id}/comm\`, 'utf8'))
    console.log(names.some(name => name.startsWith('bandog')))`), 'false')
  const url = `import { lock } from 'bandog'; try { lock('a'); console.log('fine') } catch (error) { console.log(error.code) }`
  assert.equal(ask({}, url), 'fine')
  assert.equal(ask({ REDIS_URL: 'nonsense' }, url), 'invalid_url')
  assert.equal(ask({ BANDOG_URL: 'redis://127.0.0.1', REDIS_URL: 'nonsense' }, url), 'fine')
})

// The roads to a server beside plain TCP: TLS, with a CA of our own, and a socket file.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { after, test } from 'node:test'

import { LockError, connect } from 'bandog'
import { fresh, freePort, redis } from './redis.mjs'

const dir = mkdtempSync(path.join(tmpdir(), 'bandog-roads-'))
after(() => rmSync(dir, { recursive: true }))
const file = name => path.join(dir, name)

/** Makes `<name>.key` and `<name>.pem`, which `by` vouches for, or nobody but itself. */
function certificate(name, { by, extensions }) {
  writeFileSync(file('extensions'), extensions)
  const run = (...words) => execFileSync('openssl', words, { stdio: 'pipe' })
  run('req', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-subj', `/CN=${name}`,
    '-keyout', file(`${name}.key`), '-out', file('request'))
  const signed = by ? ['-CA', file(`${by}.pem`), '-CAkey', file(`${by}.key`), '-CAcreateserial'] : ['-signkey', file(`${name}.key`)]
  run('x509', '-req', '-in', file('request'), '-days', '2', '-extfile', file('extensions'), ...signed, '-out', file(`${name}.pem`))
}

const CA = 'basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign\n'
certificate('ca', { extensions: CA })
certificate('stranger', { extensions: CA })
certificate('server', { by: 'ca', extensions: 'subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth\n' })
certificate('caller', { by: 'ca', extensions: 'extendedKeyUsage=clientAuth\n' })

const tlsPort = await freePort()
const socket = file('redis.sock')
const { call, raw } = await redis(
  '--unixsocket', socket, '--tls-port', tlsPort, '--tls-auth-clients', 'optional', '--tls-ca-cert-file', file('ca.pem'),
  '--tls-cert-file', file('server.pem'), '--tls-key-file', file('server.key'),
)
const tls = `rediss://127.0.0.1:${tlsPort}`
const read = name => readFileSync(file(name))

/** A lock is taken, waited for and handed on. */
async function works(t, url, options) {
  const [one, two] = [connect(url, options), connect(url, options)]
  t.after(() => Promise.all([one.close(), two.close()]))
  const name = fresh()
  const held = await one.lock(name).acquire()
  assert.deepEqual(await call('HGETALL', name), [held.owner, '1'])
  const waiting = two.lock(name).acquire({ wait: 10_000 })
  assert.equal(await two.lock(name).tryAcquire(), null)
  await held.release()
  await (await waiting).release()
  assert.equal(await call('EXISTS', name), 0)
}

test('a socket file', t => works(t, `unix://${socket}`))

test('TLS: a CA as bytes and as text, by address and by name', async t => {
  await works(t, tls, { tlsCa: read('ca.pem') })
  await works(t, tls, { tlsCa: String(read('ca.pem')) })
  await works(t, tls.replace('127.0.0.1', 'localhost'), { tlsCa: read('ca.pem') })
})

test('TLS: whoever nobody vouches for is refused', async () => {
  for (const tlsCa of [undefined, read('stranger.pem')]) {
    const client = connect(tls, { connectTimeout: 2000, tlsCa })
    await assert.rejects(client.lock(fresh()).acquire({ wait: 0 }), error => {
      assert.ok(error instanceof LockError, String(error))
      // Where the system has no certificates at all, that is what it says.
      assert.match(error.message, /tlsCa/)
      return true
    })
    await client.close()
  }
})

test('TLS: without verification, where that was asked for', t => works(t, tls, { tlsWithoutVerification: true }))

test('TLS: a server that asks who is there', async t => {
  await raw.call('CONFIG', 'SET', 'tls-auth-clients', 'yes')
  t.after(() => raw.call('CONFIG', 'SET', 'tls-auth-clients', 'optional'))
  await works(t, tls, { tlsCa: read('ca.pem'), tlsCertificate: read('caller.pem'), tlsKey: read('caller.key') })
  const client = connect(tls, { tlsCa: read('ca.pem'), connectTimeout: 2000 })
  await assert.rejects(client.lock(fresh()).acquire({ wait: 0 }), /tlsCertificate and tlsKey/)
  await client.close()
})

// The client behind the functions of the module.
import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { inspect } from 'node:util'

import bandog, { Client, Closed, InvalidName, InvalidOption, connect, defaultClient, lock, locked } from 'bandog'
import { fresh, redis } from './redis.mjs'

const { url, call } = await redis('--requirepass', 'a-secret')
await call('AUTH', 'a-secret')
const withPassword = url.replace('//', '//:a-secret@')
process.env.BANDOG_URL = 'nonsense'
after(() => defaultClient().close())

test('locked makes no client: its first call does', async () => {
  const run = locked(fresh(), () => 'done')
  assert.throws(() => locked('', () => 'done'), InvalidName)
  assert.throws(() => locked(5, () => 'done'), InvalidName)
  await assert.rejects(run(), { code: 'invalid_url' })
  process.env.BANDOG_URL = withPassword
  assert.equal(await run(), 'done')
})

test('there is one, which can be listened to and closed', async () => {
  const client = defaultClient()
  assert.ok(client instanceof Client)
  assert.equal(bandog.defaultClient(), client)
  const events = client.events()
  const name = fresh()
  const run = locked(name, () => 'done')
  assert.equal(await run(), 'done')
  for await (const event of events) if (event.kind === 'released' && event.name === name) break

  const held = await lock(name).acquire()
  assert.equal(client.closed, false)
  const closing = client.close()
  assert.equal(client.closed, true)
  await closing
  assert.equal(await call('EXISTS', held.name), 0)
  await assert.rejects(client.lock(name).acquire(), Closed)
  // The next one who asks gets another.
  assert.notEqual(defaultClient(), client)
  assert.equal(await run(), 'done')
})

test('events keep as many as they are told to', async () => {
  const client = defaultClient()
  const [few, many] = [client.events({ capacity: 2 }), client.lock(fresh()).events({ capacity: 5000 })]
  for (let round = 0; round < 5; round++) await client.lock(fresh()).using(() => {})
  assert.equal((await few.next()).done, false)
  assert.ok(few.dropped >= 8, `${few.dropped}`)
  assert.equal(many.dropped, 0)
  await Promise.all([few.return(), many.return()])
  for (const capacity of [0, -1, NaN, Infinity, 2 ** 53, '5', null, {}]) {
    assert.throws(() => client.events({ capacity }), InvalidOption, String(capacity))
    assert.throws(() => client.lock('a').events({ capacity }), InvalidOption, String(capacity))
  }
  for (const options of [{ size: 5 }, [], 5]) assert.throws(() => client.events(options), InvalidOption)
  await client.events({}).return()
})

test('a console shows what there is to know, and no secret', async t => {
  const client = connect(withPassword)
  t.after(() => client.close())
  const order = client.lock(fresh('order'))
  const held = await order.acquire()
  for (const text of [inspect(held), inspect({ deep: held })]) {
    for (const part of ['Hold', held.name, held.owner, 'valid: true', 'lost: null']) assert.ok(text.includes(part), text)
  }
  assert.equal(inspect(order), `Lock { name: '${order.name}' }`)
  assert.equal(inspect(client), 'Client { closed: false }')
  const events = order.events()
  assert.equal(inspect(events), 'Events { dropped: 0 }')
  await events.return()
  await held.release()
  assert.match(inspect(held), /valid: false/)
  assert.doesNotMatch(inspect([client, order, held, events], { showHidden: true, depth: 9 }), /a-secret/)
  for (const made of [Client, bandog.Lock, bandog.Hold, bandog.Events]) inspect(made.prototype)
  assert.equal(inspect(held, { depth: -1 }), '[Hold]')
})

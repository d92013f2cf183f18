'use strict'

const { AsyncLocalStorage } = require('node:async_hooks')
const { Hold, Lock, Scope } = require('./native.cjs')
const host = require('./host.cjs')
const { classes, functionFor } = require('./errors.cjs')
const { cancellable } = require('./signal.cjs')

// The scopes that the running code is in, innermost first: { scope, outer }.
const scopes = new AsyncLocalStorage()

/** The open scope of this lock that the caller runs in. */
function inside(lock) {
  for (let at = scopes.getStore(); at !== undefined; at = at.outer) {
    if (at.scope.covers(lock)) return at.scope
  }
  return undefined
}

const { acquire, tryAcquire, release, held, levels } = Lock.prototype
const quick = host.quick

Hold.prototype.release = quick.release

Lock.prototype.acquire = function (options) {
  if (options === undefined && scopes.getStore() === undefined) return quick.acquire.call(this)
  return cancellable(options, cancel => acquire.call(this, options, inside(this), cancel))
}

Lock.prototype.tryAcquire = function (options) {
  return cancellable(options, cancel => tryAcquire.call(this, options, inside(this), cancel))
}

Lock.prototype.release = function () {
  return release.call(this, inside(this))
}

Lock.prototype.held = function () {
  return held.call(this, inside(this))
}

delete Lock.prototype.levels
Object.defineProperty(Lock.prototype, 'count', {
  configurable: true,
  get() {
    return levels.call(this, inside(this))
  },
})

Lock.prototype.using = async function (body, options) {
  functionFor('using(async held => ...)', body)
  const entered = inside(this)
  const scope = entered ?? new Scope(this)
  const hold = await cancellable(options, cancel => acquire.call(this, options, scope, cancel))
  const run = entered === undefined ? () => scopes.run({ scope, outer: scopes.getStore() }, body, hold) : () => body(hold)
  let failed = false
  let result
  try {
    result = await run()
  } catch (error) {
    failed = true
    result = error
  }
  if (entered === undefined) scope.close()
  try {
    await hold[Symbol.asyncDispose]()
  } catch (error) {
    if (!failed) throw error
    attach(result, error)
  } finally {
    if (entered === undefined) scope.end()
  }
  if (failed) throw result
  return result
}

// The body's own error goes on; what leaving found is a property of it, if it can have one.
function attach(thrown, error) {
  if ((typeof thrown !== 'object' && typeof thrown !== 'function') || thrown === null) return
  const key = error instanceof classes.LockLost ? 'lockLost' : 'releaseError'
  Reflect.defineProperty(thrown, key, { value: error, configurable: true, enumerable: true, writable: true })
}

module.exports = { inside }

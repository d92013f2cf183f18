'use strict'

const host = require('./host.cjs')
const { functionFor } = require('./errors.cjs')

/** A function that runs under the lock of that name; `lockOf(name)` makes the lock, at each call. */
function locked({ check, lockOf }, name, fn, options) {
  functionFor('locked(name, fn)', fn)
  host.checkOptions(options)
  if (typeof name !== 'function') check(name)
  const guarded = async function (...args) {
    const lock = lockOf(typeof name === 'function' ? name.apply(this, args) : name)
    return lock.using(() => fn.apply(this, args), options)
  }
  return Object.defineProperty(guarded, 'name', { value: fn.name, configurable: true })
}

module.exports = locked

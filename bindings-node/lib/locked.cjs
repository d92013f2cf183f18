'use strict'

const { invalidOption } = require('./errors.cjs')

const GENERATORS = new Set([(function* () {}).constructor, (async function* () {}).constructor])

/** A function that runs under the lock of that name; `lockOf(name)` makes the lock. */
function locked(lockOf, name, fn, options) {
  if (typeof fn !== 'function') throw invalidOption('locked needs a function: locked(name, fn)')
  if (GENERATORS.has(fn.constructor)) {
    throw invalidOption('locked cannot wrap a generator: the lock would be released before its first step')
  }
  const fixed = typeof name === 'function' ? undefined : lockOf(name, options)
  const guarded = async function (...args) {
    const lock = fixed ?? lockOf(name.apply(this, args), options)
    return lock.using(() => fn.apply(this, args), options)
  }
  return Object.defineProperty(guarded, 'name', { value: fn.name, configurable: true })
}

module.exports = locked

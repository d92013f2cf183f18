'use strict'

const host = require('./host.cjs')
const { invalidOption } = require('./errors.cjs')

const GENERATORS = new Set([(function* () {}).constructor, (async function* () {}).constructor])

/** A function that runs under the lock of that name; `lockOf(name)` makes the lock, at each call. */
function locked({ check, lockOf }, name, fn, options) {
  if (typeof fn !== 'function') throw invalidOption('locked needs a function: locked(name, fn)')
  if (GENERATORS.has(fn.constructor)) {
    throw invalidOption('locked cannot wrap a generator: the lock would be released before its first step')
  }
  host.checkOptions(options)
  if (typeof name !== 'function') check(name)
  const guarded = async function (...args) {
    const lock = lockOf(typeof name === 'function' ? name.apply(this, args) : name)
    return lock.using(() => fn.apply(this, args), options)
  }
  return Object.defineProperty(guarded, 'name', { value: fn.name, configurable: true })
}

module.exports = locked

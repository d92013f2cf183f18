'use strict'

// The classes that `fail` in src/errors.rs names. `instanceof` and `code` both say what happened.
class LockError extends Error {
  constructor(message, code, fields) {
    super(message)
    this.code = code
    if (fields?.lockName != null) this.lockName = fields.lockName
    if (fields?.owner != null) this.owner = fields.owner
    if (fields?.freeAtLatest != null) this.freeAtLatest = fields.freeAtLatest
  }
}

class NotOwner extends LockError {}

const classes = { LockError, NotOwner, LockLost: class LockLost extends NotOwner {} }
for (const name of [
  'LockTimeout', 'ReleaseUnknown', 'NotReplicated', 'PermissionDenied', 'WrongType', 'ReadOnly', 'OutOfMemory',
  'Unreachable', 'Protocol', 'ForkedHandle', 'Closed', 'InvalidName', 'InvalidLease', 'InvalidUrl',
  'InvalidOption', 'BlockingInLoop',
]) {
  classes[name] = { [name]: class extends LockError {} }[name]
}
for (const [name, type] of Object.entries(classes)) {
  Object.defineProperty(type.prototype, 'name', { value: name, configurable: true, writable: true })
}

/** Makes the error that Rust asks for. */
function fail(name, code, message, lockName, owner, freeAtLatest) {
  const error = new classes[name](message, code, { lockName, owner, freeAtLatest })
  // The stack begins where the user's code called, not here.
  Error.captureStackTrace(error, fail)
  return error
}

const invalidOption = message => new classes.InvalidOption(message, 'invalid_option')

const GENERATORS = new Set([(function* () {}).constructor, (async function* () {}).constructor])

/** Refuses what cannot be run under a lock; `call` is how it was to be given. */
function functionFor(call, fn) {
  if (typeof fn !== 'function') throw invalidOption(`${call} needs a function`)
  if (GENERATORS.has(fn.constructor)) {
    throw invalidOption(`${call} cannot run a generator: the lock would be released before its first step`)
  }
}

module.exports = { classes, fail, invalidOption, functionFor }

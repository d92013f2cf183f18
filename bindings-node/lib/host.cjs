'use strict'

const native = require('./native.cjs')
const { dial } = require('./carrier.cjs')
const { fail } = require('./errors.cjs')

// A listener that throws or rejects is reported once and harms nobody.
function report(error) {
  const told = error instanceof Error ? error.stack ?? error.message : String(error)
  process.emitWarning(`a bandog listener failed: ${told}`, 'BandogListenerWarning')
}

function tell(listener, value) {
  try {
    const result = listener(value)
    if (typeof result?.then === 'function') result.then(undefined, report)
  } catch (error) {
    report(error)
  }
}

// What an operator should know, whether or not anybody listens to events.
function warn(text) {
  process.emitWarning(text, 'BandogWarning')
}

// The end of a turn: what it had to say goes out in one write.
const flush = () => host.flush()
const later = () => process.nextTick(flush)

// These have functions of libuv's names that do not work.
const stranger = Boolean(process.versions.bun || process.versions.deno)

const { Hold } = native
const host = new native.Host({ fail, tell, warn, later, dial, Hold }, process.env.BANDOG_TRANSPORT || undefined, stranger)

// A clean exit releases what is held, if the server answers at once. `exit` comes in every orderly end of a
// process or worker; an environment that is torn down without it is cleaned up by the addon itself.
process.once('exit', () => host.leave())

module.exports = host

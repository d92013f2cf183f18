'use strict'

const { Cancel, Hold } = require('./native.cjs')
const host = require('./host.cjs')
const { invalidOption } = require('./errors.cjs')

/** Starts an acquire that `options.signal` withdraws. */
function cancellable(options, start) {
  const signal = options?.signal
  if (signal == null) return start()
  if (typeof signal.aborted !== 'boolean' || typeof signal.addEventListener !== 'function') {
    return Promise.reject(invalidOption('signal is an AbortSignal'))
  }
  if (signal.aborted) return Promise.reject(signal.reason)
  const cancel = new Cancel(host)
  const promise = start(cancel)
  const abort = () => cancel.cancel(signal.reason)
  const settled = () => signal.removeEventListener('abort', abort)
  signal.addEventListener('abort', abort, { once: true })
  promise.then(settled, settled)
  return promise
}

const controllers = new WeakMap()

Object.defineProperty(Hold.prototype, 'signal', {
  configurable: true,
  get() {
    let controller = controllers.get(this)
    if (controller === undefined) {
      controller = new AbortController()
      controllers.set(this, controller)
      this.onLost(error => controller.abort(error))
    }
    return controller.signal
  },
})

module.exports = { cancellable }

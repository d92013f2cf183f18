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
  const waiting = waitingFor(signal)
  waiting.add(cancel)
  const settled = () => {
    if (waiting.delete(cancel) && waiting.size === 0) waiting.stop()
  }
  promise.then(settled, settled)
  return promise
}

// One listener for each signal, however many acquires share it: Node warns of more than ten.
const listening = new WeakMap()

function waitingFor(signal) {
  let waiting = listening.get(signal)
  if (waiting === undefined) {
    waiting = new Set()
    const abort = () => {
      listening.delete(signal)
      for (const cancel of waiting) cancel.cancel(signal.reason)
    }
    waiting.stop = () => {
      listening.delete(signal)
      signal.removeEventListener('abort', abort)
    }
    listening.set(signal, waiting)
    signal.addEventListener('abort', abort, { once: true })
  }
  return waiting
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

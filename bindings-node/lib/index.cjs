'use strict'

const native = require('./native.cjs')
const host = require('./host.cjs')
const { classes } = require('./errors.cjs')
const wrap = require('./locked.cjs')
require('./scope.cjs')
require('./inspect.cjs')

const { Client, Lock, Hold, Events } = native

const fallback = () => process.env.BANDOG_URL || process.env.REDIS_URL || 'redis://127.0.0.1:6379'

const connect = (url, options) => host.connect(url ?? fallback(), options)

// The client behind the module's own functions, made for the first of them, and again after a close.
let shared
function defaultClient() {
  if (shared === undefined || shared.closed) shared = connect()
  return shared
}

const lock = (name, options) => defaultClient().lock(name, options)

const locked = (name, fn, options) => wrap({ check: text => host.checkName(text), lockOf: text => lock(text) }, name, fn, options)

Client.prototype.locked = function (name, fn, options) {
  const lockOf = text => this.lock(text)
  return wrap({ check: lockOf, lockOf }, name, fn, options)
}

Client.prototype[Symbol.asyncDispose] = function () {
  return this.close()
}

Events.prototype[Symbol.asyncIterator] = function () {
  return this
}

const { transport } = host

module.exports = { connect, defaultClient, lock, locked, transport, Client, Lock, Hold, Events, ...classes }

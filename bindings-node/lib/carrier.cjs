'use strict'

const net = require('node:net')

/** Opens the connection that `carrier` is asked for; gives what moves its bytes. `host` alone is a socket file. */
function dial(carrier, host, port) {
  let socket
  try {
    socket = net.connect(
      port === undefined ? { path: host } : { host, port, noDelay: true, keepAlive: true, keepAliveInitialDelay: 15_000 },
    )
  } catch (error) {
    // What a runtime refuses to try at all.
    carrier.lost(String(error.code ?? error.name), String(error.message))
    return { send: () => true, end() {} }
  }
  // What keeps the process alive is that something is wanted, not that it can be asked for.
  socket.unref()
  socket.on('connect', () => carrier.opened())
  socket.on('data', bytes => carrier.received(bytes))
  socket.on('drain', () => carrier.drained())
  // A name with several addresses fails with the errors of all.
  socket.on('error', error => carrier.lost(error.code ?? 'EIO', error.message || error.errors?.[0]?.message))
  socket.on('end', () => carrier.lost())
  socket.on('close', () => carrier.lost())
  return {
    send: bytes => socket.write(bytes),
    end(abrupt) {
      if (abrupt && !socket.connecting && typeof socket.resetAndDestroy === 'function') socket.resetAndDestroy()
      else socket.destroy()
    },
  }
}

module.exports = { dial }

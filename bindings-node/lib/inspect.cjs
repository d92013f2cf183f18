'use strict'

const { Client, Lock, Hold, Events } = require('./native.cjs')

// What a console shows: these objects keep their state in the addon, where it does not look.
function show(type, look) {
  Object.defineProperty(type.prototype, Symbol.for('nodejs.util.inspect.custom'), {
    configurable: true,
    writable: true,
    value(depth, options, inspect) {
      if (depth < 0) return options.stylize(`[${type.name}]`, 'special')
      // The prototype itself has no state to look at.
      const seen = Object.hasOwn(this, 'constructor') ? {} : look(this)
      return `${type.name} ${inspect(seen, options)}`
    },
  })
}

show(Client, ({ closed }) => ({ closed }))
show(Lock, ({ name }) => ({ name }))
show(Hold, ({ name, owner, valid, lost, count }) => ({ name, owner, valid, lost, count }))
show(Events, ({ dropped }) => ({ dropped }))

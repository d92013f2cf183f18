'use strict'

const { existsSync } = require('node:fs')
const path = require('node:path')

// The addon that was built here, else the one a platform package brings: `@bandog/linux-x64-gnu` and so on.
function load() {
  const built = path.join(__dirname, '..', 'bandog.node')
  if (existsSync(built)) return require(built)
  const musl = process.platform === 'linux' && !process.report?.getReport?.().header?.glibcVersionRuntime
  const libc = process.platform === 'linux' ? (musl ? '-musl' : '-gnu') : ''
  const platform = `${process.platform}-${process.arch}${libc}`
  try {
    return require(`@bandog/${platform}`)
  } catch (cause) {
    throw new Error(`bandog has no native addon for ${platform}: build it with "npm run build"`, { cause })
  }
}

module.exports = load()

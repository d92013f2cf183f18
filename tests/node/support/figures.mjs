// Numbers of many, where one alone would be the machine's.
export function median(values) {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[sorted.length >> 1]
}

/** One line for the report of a test. */
export function summary(values, unit = 'ms') {
  const sorted = [...values].sort((a, b) => a - b)
  const show = value => value.toFixed(1)
  return `${sorted.length} of them: min ${show(sorted[0])}, median ${show(median(sorted))}, max ${show(sorted.at(-1))} ${unit}`
}

export async function timed(promise) {
  const began = performance.now()
  const outcome = await Promise.resolve(promise).then(value => ({ value }), error => ({ error }))
  return { ...outcome, took: performance.now() - began }
}

/** What clients asked of the server since the last RESETSTAT: outer commands only, scripts count as one. */
export async function asked(call) {
  const counts = {}
  for (const line of (await call('INFO', 'commandstats')).split('\r\n')) {
    const found = /^cmdstat_([^:]+):calls=(\d+)/.exec(line)
    if (found) counts[found[1]] = Number(found[2])
  }
  const of = name => counts[name] ?? 0
  return { tries: of('evalsha') + of('eval'), subscribes: of('subscribe'), hellos: of('hello') }
}

// What every Node contender shares: how a pair is timed and told.

export const [host, port, pairs] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4])]

/** Times `pair` many times and prints the percentiles in microseconds as one line of JSON. */
export async function measure(pair) {
  for (let n = 0; n < Math.max(200, pairs / 10); n++) await pair()
  const took = []
  for (let n = 0; n < pairs; n++) {
    const start = process.hrtime.bigint()
    await pair()
    took.push(Number(process.hrtime.bigint() - start) / 1000)
  }
  took.sort((a, b) => a - b)
  console.log(JSON.stringify({ p50: took[pairs >> 1], p99: took[Math.floor(pairs * 0.99)] }))
}

// What the server says about leases, watched closely.

/** The least time to live seen among `names` while `during` runs. Missing keys count as 0. One script per look. */
export async function least(call, names, during) {
  const source = `
    local low, who = math.huge, ''
    for _, key in ipairs(KEYS) do
      local ttl = redis.call('PTTL', key)
      if ttl < low then low, who = ttl, key end
    end
    return {low, who}`
  let over = false
  const done = Promise.resolve(during).finally(() => { over = true })
  let lowest = { ttl: Infinity, name: '' }
  while (!over) {
    const [ttl, name] = await call('EVAL', source, names.length, ...names)
    if (ttl < lowest.ttl) lowest = { ttl, name }
    await new Promise(resolve => setTimeout(resolve, 10))
  }
  await done
  return lowest
}

export const channelOf = name => (name.includes('{') ? `redisson_lock__channel:${name}` : `redisson_lock__channel:{${name}}`)

/** Another program's lock, as Redisson would write it. */
export const STRANGER = '285475da-9152-4c83-822a-67ee2f116a79:52'

export async function takeAs(call, name, lease, owner = STRANGER) {
  await call('HSET', name, owner, 1)
  await call('PEXPIRE', name, lease)
}

export async function freeAs(call, name, owner = STRANGER) {
  await call('EVAL', `redis.call('HDEL', KEYS[1], ARGV[1]) return redis.call('PUBLISH', KEYS[2], '0')`, 2, name, channelOf(name), owner)
}

-- Reach a hold count (protocol 4.1; counts are absolute, design 3). `holder` comes from shape.lua.
-- KEYS 1 lock
-- ARGV 1 lease in ms, 2 owner, 3 the count to reach, 4 '1' to take a free lock, 5 ms to live for a lock without expiry
-- Replies n > 0: the owner's field has this count; 0: the owner's field is not there;
--         {ttl}: another holds it; {ttl, 1}: the same, it had no expiry and was given one
local lock, lease, owner, count = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local size = redis.call('HLEN', lock)

if size == 0 then
  if ARGV[4] ~= '1' then return 0 end
  -- In this order: a write before HSET would lift the memory limit for it. And as nothing is rolled back,
  -- a refused PEXPIRE takes the field with it: no lock stays without an expiry (S14).
  redis.call('HSET', lock, owner, ARGV[3])
  local set = redis.pcall('PEXPIRE', lock, lease)
  if set == 1 then return count end
  redis.pcall('HDEL', lock, owner)
  return set
end

local have = redis.call('HGET', lock, owner)
if have then
  -- Never shorter: a try that is executed late, behind a longer lease, must not cut what is relied on.
  -- PEXPIRE first: a server out of memory refuses an HSET unless a write went before it (S15).
  redis.call('PEXPIRE', lock, math.max(redis.call('PTTL', lock), tonumber(lease)))
  have = tonumber(have)
  if have and have >= count and have < 2 ^ 32 then return have end
  redis.call('HSET', lock, owner, ARGV[3])
  return count
end

if ARGV[4] ~= '1' then return 0 end
local _, wrong = holder(lock, size)
if wrong then return wrong end
local ttl = redis.call('PTTL', lock)
if ttl >= 0 then return {ttl} end
redis.call('PEXPIRE', lock, ARGV[5])
return {tonumber(ARGV[5]), 1}

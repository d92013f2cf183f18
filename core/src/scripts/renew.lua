-- Renew holds (protocol 4.4, 16.3), each with its own lease; never shortens one.
-- KEYS up to 100 locks
-- ARGV for each lock: owner, lease in ms
-- Replies for each lock 1: renewed, 0: the owner's field is not there, or the text of an error;
--         then the server's clock: seconds, microseconds
-- pcall, so that one bad key does not stop the rest.
local function renew(lock, owner, lease)
  local got = redis.pcall('HEXISTS', lock, owner)
  if got ~= 1 then return got end
  local ttl = redis.pcall('PTTL', lock)
  if type(ttl) == 'table' then return ttl end
  return redis.pcall('PEXPIRE', lock, math.max(ttl, lease))
end

local out = {}
for i = 1, #KEYS do
  local got = renew(KEYS[i], ARGV[2 * i - 1], tonumber(ARGV[2 * i]))
  out[i] = type(got) == 'table' and got.err or got
end
-- Two texts as they come: a Lua number made into text keeps 14 digits (S2b).
local time = redis.call('TIME')
out[#KEYS + 1], out[#KEYS + 2] = time[1], time[2]
return out

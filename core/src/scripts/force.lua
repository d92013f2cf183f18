-- Free a lock whoever holds it (protocol 4.3), but only from the owners that were seen. `holder`: shape.lua.
-- KEYS 1 lock, 2 channel
-- ARGV 1 publish command, then up to 100 owners to delete; none: name the owners there are
-- Replies without owners {owner, ...}; with owners: how many were deleted
local lock = KEYS[1]
local size = redis.call('HLEN', lock)
if size == 0 then return #ARGV > 1 and 0 or {} end
local owner, wrong = holder(lock, size)
if wrong then return wrong end
if #ARGV == 1 then return {owner} end

local gone = redis.call('HDEL', lock, unpack(ARGV, 2))
if redis.call('HLEN', lock) == 0 then
  redis.call(ARGV[1], KEYS[2], '0')
end
return gone

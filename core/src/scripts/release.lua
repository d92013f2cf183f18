-- Go down to a hold count (protocol 4.2; counts are absolute, design 3: no unlock latch).
-- KEYS 1 lock, 2 channel
-- ARGV 1 owner, 2 the count to go down to, 3 lease in ms for an inner release, 4 publish command
-- Replies {told}: the hold is over, so many subscribers were told; n > 0: this many levels are left;
--         0: the owner's field is not there
local lock, owner = KEYS[1], ARGV[1]

if ARGV[2] == '0' then
  -- HDEL, not DEL: whatever else stands there is not ours to delete (S3).
  if redis.call('HDEL', lock, owner) == 0 then return 0 end
  if redis.call('HLEN', lock) > 0 then return {0} end
  return {redis.call(ARGV[4], KEYS[2], '0')}
end

local have = redis.call('HGET', lock, owner)
if not have then return 0 end
-- PEXPIRE first: a server out of memory refuses an HSET unless a write went before it (S15).
local count, lease, ttl = tonumber(ARGV[2]), tonumber(ARGV[3]), redis.call('PTTL', lock)
-- Never 0: that deletes the key, and the HSET would bring it back without an expiry (S14).
redis.call('PEXPIRE', lock, math.max(ttl, lease, 1))
have = tonumber(have)
if have and have >= 1 and have <= count then return have end
redis.call('HSET', lock, owner, ARGV[2])
return count

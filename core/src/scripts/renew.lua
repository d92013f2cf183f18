-- Renew holds (protocol 4.4, 16.3), each with its own lease; never shortens one: a renewal may overtake,
-- or be overtaken by, an extension that came down another connection.
-- KEYS up to 100 locks
-- ARGV for each lock: owner, lease in ms
-- Replies for each lock 1: renewed, 0: the owner's field is not there, or the text of an error;
--         then the server's clock: seconds, microseconds
-- pcall, so that one bad key does not stop the rest.
local pcall, out = redis.pcall, {}
for i = 1, #KEYS do
  local lock, lease = KEYS[i], ARGV[2 * i]
  local got = pcall('HEXISTS', lock, ARGV[2 * i - 1])
  if got == 1 then
    got = pcall('PTTL', lock)
    if type(got) == 'number' then
      if got < tonumber(lease) then got = lease end
      got = pcall('PEXPIRE', lock, got)
    end
  end
  out[i] = type(got) == 'table' and got.err or got
end
-- Two texts as they come: a Lua number made into text keeps 14 digits (S2b).
local time = redis.call('TIME')
out[#KEYS + 1], out[#KEYS + 2] = time[1], time[2]
return out

-- Renew holds (protocol 4.4, 16.3); never shortens a lease: a renewal may overtake, or be overtaken by, an
-- extension that came down another connection.
-- KEYS up to 100 locks
-- ARGV the owner of each lock; then the lease in ms, one for all or one for each
-- Replies for each lock that was not renewed its place and 0: the owner's field is not there, or the text of
--         an error; then how many were renewed, and the server's clock: seconds, microseconds
-- pcall, so that one bad key does not stop the rest.
local pcall, keys, args, out, renewed = redis.pcall, KEYS, ARGV, {}, 0
local count, single, old = #keys, #ARGV == #KEYS + 1, false

-- Where PEXPIRE .. GT says no: the expiry is longer, or there is none, or the server is older than 7.0.
local function compare(lock, lease)
  local ttl = pcall('PTTL', lock)
  if type(ttl) ~= 'number' then return ttl end
  if ttl >= tonumber(lease) then return 1 end
  return pcall('PEXPIRE', lock, lease)
end

for i = 1, count do
  local lock, lease = keys[i], args[single and count + 1 or count + i]
  local got = pcall('HEXISTS', lock, args[i])
  if got == 1 then
    if not old then
      got = pcall('PEXPIRE', lock, lease, 'GT')
      old = type(got) == 'table'
    end
    if old or got ~= 1 then got = compare(lock, lease) end
  end
  if got == 1 then
    renewed = renewed + 1
  else
    out[#out + 1] = i
    out[#out + 1] = type(got) == 'table' and got.err or got
  end
end
-- Two texts as they come: a Lua number made into text keeps 14 digits (S2b).
local time = redis.call('TIME')
local last = #out
out[last + 1], out[last + 2], out[last + 3] = renewed, time[1], time[2]
return out

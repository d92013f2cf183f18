-- Whether a lock is held, and for how long yet (protocol 4.5). `holder` comes from shape.lua.
-- KEYS 1 lock
-- Replies -2: free; -1: held without expiry; else ms to live
local size = redis.call('HLEN', KEYS[1])
if size == 0 then return -2 end
local _, wrong = holder(KEYS[1], size)
return wrong or redis.call('PTTL', KEYS[1])

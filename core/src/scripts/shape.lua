-- In front of every script that meets the holds of others: who holds the plain lock at `key`, whose hash
-- has `size` fields, or else an error that says what stands there. Reads one field (X4), writes nothing.
-- A plain lock is one field `<uuid>:<number>`, maybe with a `:suffix`, and an integer (protocol 1.3, 4);
-- a read-write lock has a field `mode` beside its owners (protocol 7).
local function holder(key, size)
  if size == 1 then
    local pair = redis.call('HGETALL', key)
    local uuid, suffix = string.match(pair[1], '^(%x+%-%x+%-%x+%-%x+%-%x+):%-?%d+(.*)$')
    local named = uuid and #uuid == 36 and (suffix == '' or string.sub(suffix, 1, 1) == ':')
    if named and string.find(pair[2], '^%-?%d+$') then
      return pair[1]
    end
  end
  local mode = redis.call('HGET', key, 'mode')
  if mode == 'read' or mode == 'write' then
    return nil, {err = 'WRONGTYPE the key holds a read-write lock, not a plain lock'}
  end
  return nil, {err = 'WRONGTYPE the key holds a hash of ' .. size .. ' fields that is not a lock'}
end


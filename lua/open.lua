-- needs: time
-- Stores the settings of a namespace in one shard at first use, and returns what is stored.
--
-- KEYS[1]  meta    hash    settings, rotation state
-- ARGV[1]  create  '1': store the settings below where none are stored, and start the clock of rotation
-- ARGV[2]  now_ms  clock override for tests; empty: the server's clock
-- ARGV[3]  name    of a setting
-- ARGV[4]  value   of it; 3 and 4 repeated
-- Returns  the stored values in the order of the names, false where there is none
-- Emits    nothing

local meta, create, now_ms = KEYS[1], ARGV[1] == '1', tonumber(ARGV[2]) or server_ms()
local names, first = {}, {}
for i = 3, #ARGV, 2 do
  names[#names + 1] = ARGV[i]
  first[#first + 1] = ARGV[i]
  first[#first + 1] = ARGV[i + 1]
end
if create and not redis.call('HGET', meta, names[1]) then
  redis.call('HSET', meta, 'turned_ms', now_ms, unpack(first))
end
return redis.call('HMGET', meta, unpack(names))

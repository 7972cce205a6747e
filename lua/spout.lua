-- Gives a spout its number, the same for ever.
--
-- KEYS[1]  spouts  hash  name -> number
-- ARGV[1]  name    of the spout
-- ARGV[2]  most    highest number
-- Returns  the number, or 0 when all are taken
-- Emits    nothing

local spouts, name, most = KEYS[1], ARGV[1], tonumber(ARGV[2])
local number = redis.call('HGET', spouts, name)
if number then return tonumber(number) end
number = redis.call('HLEN', spouts) + 1
if number > most then return 0 end
redis.call('HSET', spouts, name, number)
return number

-- Gives a spout its number, the same for ever. It follows from the name, unless another spout has that number: so a
-- store that lost everything gives a spout the number it had. What is no number was written by another program.
--
-- KEYS[1]  spouts  hash  name -> number
-- ARGV[1]  name    of the spout
-- ARGV[2]  number  that follows from the name
-- ARGV[3]  most    highest number
-- Returns  the number, or 0 when all are taken
-- Emits    nothing

local spouts, name, number, most = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local known = tonumber(redis.call('HGET', spouts, name) or '')
if known and known >= 1 and known <= most then return known end
local numbers, taken = redis.call('HVALS', spouts), {}
for i = 1, #numbers do taken[numbers[i]] = true end
if #numbers >= most then return 0 end
while taken['' .. number] do number = number % most + 1 end
redis.call('HSET', spouts, name, number)
return number

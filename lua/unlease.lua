-- Gives up the right to drive a spout. A driver that stops so has not died.
--
-- KEYS[1]  lease  string  name of the owner, expires
-- KEYS[2]  began  string  first block sequence of the driver at work
-- ARGV[1]  owner  who gives it up; nothing happens if it is not the owner
-- ARGV[2]  mark   what the owner has written into began; empty: nothing
-- Returns  1 if it was the owner, else 0
-- Emits    nothing

local lease, began, owner, mark = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
if redis.call('GET', lease) ~= owner then return 0 end
if redis.call('GET', began) == mark then redis.call('DEL', began) end
return redis.call('DEL', lease)

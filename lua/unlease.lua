-- Gives up the right to drive a spout. A driver that stops so has not died.
--
-- KEYS[1]  lease  string  name of the owner, expires
-- KEYS[2]  began  string  first block sequence of the driver at work
-- ARGV[1]  owner  who gives it up; the lease of another stays
-- ARGV[2]  mark   what the owner has written into began; empty: nothing
-- Returns  1 if it was the owner, else 0
-- Emits    nothing

local lease, began, owner, mark = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
if redis.call('GET', began) == mark then redis.call('DEL', began) end -- also if the lease has run out
if redis.call('GET', lease) ~= owner then return 0 end
return redis.call('DEL', lease)

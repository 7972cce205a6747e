-- Gives up the right to drive a spout.
--
-- KEYS[1]  lease  string  name of the owner, expires
-- ARGV[1]  owner  who gives it up; nothing happens if it is not the owner
-- Returns  1 if it was the owner, else 0
-- Emits    nothing

local lease, owner = KEYS[1], ARGV[1]
if redis.call('GET', lease) ~= owner then return 0 end
return redis.call('DEL', lease)

-- Takes or keeps the right to drive a spout, for one owner at a time.
--
-- KEYS[1]  lease  string  name of the owner, expires
-- ARGV[1]  owner  who asks
-- ARGV[2]  for_ms how long the lease lasts unless it is renewed
-- Returns  the owner now, and ms until its lease ends
-- Emits    nothing

local lease, owner, for_ms = KEYS[1], ARGV[1], ARGV[2]
local holder = redis.call('GET', lease)
if holder and holder ~= owner then return { holder, redis.call('PTTL', lease) } end
redis.call('DEL', lease) -- a first write that is allowed when memory is full, so that the next is too
redis.call('SET', lease, owner, 'PX', for_ms)
return { owner, tonumber(for_ms) }

-- Takes or keeps the right to drive a spout, for one owner at a time.
--
-- KEYS[1]  lease  string  name of the owner, expires
-- KEYS[2]  began  string  first block sequence of the driver at work
-- ARGV[1]  owner  who asks
-- ARGV[2]  for_ms how long the lease lasts unless it is renewed
-- ARGV[3]  dead   an owner that is known to be dead, whose lease counts for nothing; empty: none
-- ARGV[4]  mark   what to write into began, if the owner has the lease; empty: nothing
-- Returns  the owner now, and ms until its lease ends
-- Emits    nothing

local lease, began, owner, for_ms, dead, mark = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local holder = redis.call('GET', lease)
if holder and holder ~= owner and holder ~= dead then
  local left_ms = redis.call('PTTL', lease)
  if left_ms >= 0 then return { holder, left_ms } end -- one that never ends was written by another program
end
redis.call('DEL', lease) -- a first write that is allowed when memory is full, so that the next is too
redis.call('SET', lease, owner, 'PX', for_ms)
if mark ~= '' then redis.call('SET', began, mark) end
return { owner, tonumber(for_ms) }

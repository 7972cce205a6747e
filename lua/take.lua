-- Moves one failure out of its stream into the hash of those that are being drained, where one owner has it and no other
-- reader sees it. What the owner leaves of it stays in the stream as a new entry. The same call again says the same.
--
-- KEYS[1]  failures  stream  of a spout
-- KEYS[2]  taken     hash    entry -> who drains it, and what it says
-- ARGV[1]  group     of consumers
-- ARGV[2]  held      '1': also if a consumer of the group has it
-- ARGV[3]  entry     id
-- ARGV[4]  note      what the hash keeps of it, its owner first
-- ARGV[5]  name      of a field of the new entry; none if nothing is left
-- ARGV[6]  value     of it; 5 and 6 repeated
-- Returns  1 if the owner has it; 0 if it is gone, or a consumer has it
-- Emits    what is left to the failure stream

local failures, taken, group, held, entry, note = KEYS[1], KEYS[2], ARGV[1], ARGV[2] == '1', ARGV[3], ARGV[4]
local known = redis.call('HGET', taken, entry)
if known then return known == note and 1 or 0 end
if not held and #redis.call('XPENDING', failures, group, entry, entry, 1) > 0 then return 0 end
if redis.call('XDEL', failures, entry) == 0 then return 0 end -- a first write that is allowed when memory is full
redis.call('XACK', failures, group, entry)
redis.call('HSET', taken, entry, note)
local rest = {}
for i = 5, #ARGV, 2 do
  rest[#rest + 1] = ARGV[i]
  rest[#rest + 1] = ARGV[i + 1]
end
if #rest > 0 then redis.call('XADD', failures, '*', unpack(rest)) end
return 1

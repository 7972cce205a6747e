-- Withdraws one failure: moves it from its stream into a hash, where it belongs to one owner and no other reader sees
-- it. The same call again gives the same answer.
--
-- KEYS[1]  failures   stream  of a spout
-- KEYS[2]  withdrawn  hash    entry -> its owner, and what it says
-- ARGV[1]  group      of consumers
-- ARGV[2]  held       '1': also if a consumer of the group has it
-- ARGV[3]  entry      id
-- ARGV[4]  note       what the hash keeps of it, its owner first
-- Returns  1 if the owner has it; 0 if it is gone, or a consumer has it
-- Emits    nothing

local failures, withdrawn, group, held, entry, note = KEYS[1], KEYS[2], ARGV[1], ARGV[2] == '1', ARGV[3], ARGV[4]
local known = redis.call('HGET', withdrawn, entry)
if known then return known == note and 1 or 0 end
if not held and #redis.call('XPENDING', failures, group, entry, entry, 1) > 0 then return 0 end
if redis.call('XDEL', failures, entry) == 0 then return 0 end -- a first write that is allowed when memory is full
redis.call('XACK', failures, group, entry)
redis.call('HSET', withdrawn, entry, note)
return 1

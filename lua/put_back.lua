-- Puts a withdrawn failure back into its stream, as a new entry.
--
-- KEYS[1]  failures   stream  of a spout
-- KEYS[2]  withdrawn  hash    entry -> its owner, and what it says
-- ARGV[1]  entry      id
-- ARGV[2]  note       what the hash keeps of it, as the caller has read it
-- ARGV[3]  name       of a field of the new entry; none if nothing is to be put back
-- ARGV[4]  value      of it; 3 and 4 repeated
-- Returns  1 if it was there; 0 if it was not, or has another owner by now
-- Emits    what is put back, to the failure stream

local failures, withdrawn, entry, note = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
if redis.call('HGET', withdrawn, entry) ~= note then return 0 end
redis.call('XLEN', failures) -- refuses a key of a wrong type before the first write
redis.call('HDEL', withdrawn, entry) -- a first write that is allowed when memory is full, so that the next is too
local fields = {}
for i = 3, #ARGV, 2 do
  fields[#fields + 1] = ARGV[i]
  fields[#fields + 1] = ARGV[i + 1]
end
if #fields > 0 then redis.call('XADD', failures, '*', unpack(fields)) end
return 1

-- Stores dead letters, each in place of an older one of the same message, and counts those that are new.
--
-- KEYS[1]  dead    hash  message id -> dead letter
-- KEYS[2]  counters hash what was counted
-- ARGV[1]  spout   number
-- ARGV[2]  name    message id with its type
-- ARGV[3]  letter  what is known of the message; 2 and 3 repeated
-- Returns  how many are stored now that were not there before
-- Emits    nothing

local dead, counters, spout = KEYS[1], KEYS[2], ARGV[1]
local names, new = {}, {}
for i = 2, #ARGV, 2 do names[#names + 1] = ARGV[i] end
redis.call('HLEN', counters) -- refuses a key of a wrong type before the first write
local stored = redis.call('HMGET', dead, unpack(names))
for i = 1, #names do
  if stored[i] ~= ARGV[2 * i + 1] then
    new[#new + 1] = names[i]
    new[#new + 1] = ARGV[2 * i + 1]
  end
end
if #new == 0 then return 0 end
redis.call('HSET', dead, unpack(new))
redis.pcall('HINCRBY', counters, 'buried:' .. spout, #new / 2)
return #new / 2

-- Stores a dead letter, in place of an older one of the same message, and counts it once.
--
-- KEYS[1]  dead    hash  message id -> dead letter
-- KEYS[2]  counters hash what was counted
-- ARGV[1]  name    message id with its type
-- ARGV[2]  letter  what is known of the message
-- ARGV[3]  spout   number
-- Returns  1 if it is stored, 0 if it was already there
-- Emits    nothing

local dead, counters, name, letter, spout = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]
redis.call('HLEN', counters) -- refuses a key of a wrong type before the first write
if redis.call('HGET', dead, name) == letter then return 0 end
redis.call('HSET', dead, name, letter)
redis.pcall('HINCRBY', counters, 'buried:' .. spout, 1)
return 1

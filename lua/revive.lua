-- Turns a dead letter into a request: the driver of its spout will replay the message.
--
-- KEYS[1]  dead      hash  message id -> dead letter
-- KEYS[2]  requests  hash  message id -> failed attempts, for the driver to take into its retry book
-- ARGV[1]  name      message id with its type
-- ARGV[2]  letter    as the caller has read it
-- ARGV[3]  retry     its failed attempts and its values
-- Returns  1 if it was there; 0 if it was not, or is another by now
-- Emits    nothing

local dead, requests, name, letter, retry = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]
local request = redis.call('HGET', requests, name)
if redis.call('HGET', dead, name) ~= letter then return request == retry and 1 or 0 end
redis.call('HSET', requests, name, retry)
redis.call('HDEL', dead, name)
return 1

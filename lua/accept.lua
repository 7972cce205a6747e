-- Accepts a request for a replay into the retry book. A request that has changed since it was read stays for next time.
--
-- KEYS[1]  retries   hash  message id -> what is known of its failed attempts
-- KEYS[2]  requests  hash  message id -> failed attempts, for the driver to take into its retry book
-- ARGV[1]  name      message id with its type
-- ARGV[2]  request   as the driver has read it
-- ARGV[3]  retry     the new entry of the book; empty: the book stays as it is
-- Returns  1 if the request is dealt with, else 0
-- Emits    nothing

local retries, requests, name, request, retry = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]
redis.call('HLEN', requests) -- refuses a key of a wrong type before the first write
if retry ~= '' then redis.call('HSET', retries, name, retry) end
if redis.call('HGET', requests, name) ~= request then return 0 end
return redis.call('HDEL', requests, name)

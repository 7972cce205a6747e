-- Asks the driver of a spout to replay a message whose root failed, once per root.
--
-- KEYS[1]  requests  hash  message id -> failed attempts, for the driver to take into its retry book
-- KEYS[2]  replayed  zset  root -> when its replay was asked for
-- ARGV[1]  name      message id with its type
-- ARGV[2]  root      8 bytes
-- ARGV[3]  at_ms     time of the request
-- ARGV[4]  known     the request for this message that the caller has read; empty: none
-- ARGV[5]  retry     the failed attempts, this one included; empty: the driver knows of it
-- Returns  'noted', 'again' if it was asked for before, 'changed' if there is another request by now
-- Emits    nothing

local requests, replayed, name, root = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local at_ms, known, retry = ARGV[3], ARGV[4], ARGV[5]
if redis.call('ZSCORE', replayed, root) then return 'again' end
if (redis.call('HGET', requests, name) or '') ~= known then return 'changed' end
redis.call('ZADD', replayed, at_ms, root)
if retry ~= '' then redis.call('HSET', requests, name, retry) end
return 'noted'

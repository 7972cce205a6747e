-- needs: bytes, time
-- Sets aside a field of a hash that cannot be read: moves it into the quarantine.
--
-- KEYS[1]  hash        hash    of the field
-- KEYS[2]  quarantine  hash    where it was -> what could not be read
-- KEYS[3]  counters    hash    what was counted
-- ARGV[1]  field       that cannot be read
-- ARGV[2]  value       of it, as the caller has read it
-- ARGV[3]  name        where it was: its hash and its field
-- ARGV[4]  parts       all it says, size(4) and bytes of each
-- ARGV[5]  now_ms      clock override for tests; empty: the server's clock
-- Returns  1 if it was there, else 0
-- Emits    nothing

local hash, quarantine, counters, field, value, name = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2], ARGV[3]
local parts, now_ms = ARGV[4], tonumber(ARGV[5]) or server_ms()
redis.call('HLEN', quarantine) -- refuses a key of a wrong type before the first write
redis.call('HLEN', counters)
if redis.call('HGET', hash, field) ~= value then return 0 end
redis.call('HDEL', hash, field) -- a first write that is allowed when memory is full, so that the next are too
redis.call('HSET', quarantine, name, pack('>I6', now_ms) .. parts)
redis.pcall('HINCRBY', counters, 'quarantined', 1)
return 1

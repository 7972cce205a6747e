-- needs: bytes, time
-- Sets aside an entry of a stream that cannot be read: moves it into the quarantine.
--
-- KEYS[1]  stream      stream  completions or failures of a spout
-- KEYS[2]  quarantine  hash    where it was -> what could not be read
-- KEYS[3]  counters    hash    what was counted
-- ARGV[1]  group       of consumers
-- ARGV[2]  entry       id
-- ARGV[3]  name        where it was: its stream and its id
-- ARGV[4]  parts       all it says, size(4) and bytes of each
-- ARGV[5]  now_ms      clock override for tests; empty: the server's clock
-- Returns  1 if it was there, else 0
-- Emits    nothing

local stream, quarantine, counters, group, entry, name = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2], ARGV[3]
local parts, now_ms = ARGV[4], tonumber(ARGV[5]) or server_ms()
redis.call('HLEN', quarantine) -- refuses a key of a wrong type before the first write
redis.call('HLEN', counters)
if redis.call('XDEL', stream, entry) == 0 then return 0 end -- a first write that is allowed when memory is full
redis.call('XACK', stream, group, entry)
redis.call('HSET', quarantine, name, pack('>I6', now_ms) .. parts)
redis.pcall('HINCRBY', counters, 'quarantined', 1)
return 1

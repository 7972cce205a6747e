-- needs: time, portion
-- Keeps the portion that a Spark task works on: a worker is at it, and may have come further. Once its sink has
-- returned, its time runs out whoever is still at it: by then its roots may be complete, and soon forgotten. It needs
-- other roots if nobody has been at it for a timeout.
--
-- KEYS[1]  progress   hash  partition -> how far the run has come there (lib/portion.lua); name -> of the run
-- KEYS[2]  done_keys  hash  first block sequence -> keys of the portion's messages
-- ARGV[1]  name       of the run
-- ARGV[2]  partition  its field
-- ARGV[3]  offset     rows of the partition before the portion
-- ARGV[4]  first      its first block sequence
-- ARGV[5]  stage      that it has reached (lib/portion.lua); never goes back
-- ARGV[6]  failed     how many of its rows failed
-- ARGV[7]  timeout_ms of roots
-- ARGV[8]  now_ms     clock override for tests; empty: the server's clock
-- ARGV[9]  keys       of its messages, to be kept if it reaches this stage now; empty: none
-- Returns  'kept'; 'done' if another attempt has ended it; 'gone' if it has or needs other roots, or the run is over
-- Emits    nothing

local progress, done_keys, name, field, offset = KEYS[1], KEYS[2], ARGV[1], ARGV[2], tonumber(ARGV[3])
local first, stage, failed = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local timeout_ms, now_ms, keys = tonumber(ARGV[7]), tonumber(ARGV[8]) or server_ms(), ARGV[9]
if redis.call('HGET', progress, 'name') ~= name then return 'gone' end
local partition = read_partition(redis.call('HGET', progress, field))
if partition.done > offset then return 'done' end
if partition.done < offset or partition.rows == 0 or partition.first ~= first then return 'gone' end
if partition.stage == SUNK then return 'kept' end
if now_ms - partition.touched_ms >= timeout_ms then return 'gone' end
redis.call('HDEL', progress, '') -- a first write that is allowed when memory is full, so that the next is too
partition.touched_ms = now_ms
partition.left_rows, partition.left_first = 0, '0' -- the worker has failed them before
if stage > partition.stage then
  partition.stage, partition.now_failed = stage, failed
  if keys ~= '' then redis.call('HSET', done_keys, first, keys) end
end
redis.call('HSET', progress, field, write_partition(partition))
return 'kept'

-- needs: portion
-- Lets go of the portion in work in a partition, when the Spark job has failed: whoever goes on gets new roots for it,
-- and a worker that is still at it is told that it is gone. A portion whose sink has returned stays as it is.
--
-- KEYS[1]  progress   hash  partition -> how far the run has come there (lib/portion.lua); name -> of the run
-- ARGV[1]  name       of the run
-- ARGV[2]  partition  its field
-- Returns  rows and first block sequence of the portion, or nothing
-- Emits    nothing

local progress, name, field = KEYS[1], ARGV[1], ARGV[2]
if redis.call('HGET', progress, 'name') ~= name then return {} end
local partition = read_partition(redis.call('HGET', progress, field))
if partition.rows == 0 or partition.stage == SUNK then return {} end
local left = { partition.rows, partition.first }
redis.call('HDEL', progress, '') -- a first write that is allowed when memory is full, so that the next is too
partition.rows, partition.sum, partition.first, partition.stage = 0, '-', '0', 0
redis.call('HSET', progress, field, write_partition(partition))
return left

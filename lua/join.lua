-- Creates the consumer group of a stream, and the stream, if they are missing.
--
-- KEYS[1]  stream  stream  completions or failures of a spout
-- ARGV[1]  group   of consumers
-- Returns  1 if the group was created, 0 if it was there
-- Emits    nothing

local stream, group = KEYS[1], ARGV[1]
redis.call('XDEL', stream, '0-1') -- a first write that is allowed when memory is full, so that the next is too
if redis.call('EXISTS', stream) == 1 then
  local groups = redis.call('XINFO', 'GROUPS', stream)
  for i = 1, #groups do
    if groups[i][2] == group then return 0 end
  end
end
redis.call('XGROUP', 'CREATE', stream, group, '0', 'MKSTREAM')
return 1

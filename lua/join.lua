-- Makes the group of consumers of a stream, and the stream, where there is none.
--
-- KEYS[1]  stream  stream  completions or failures of a spout
-- ARGV[1]  group   of consumers
-- Returns  nothing
-- Emits    nothing

local stream, group = KEYS[1], ARGV[1]
redis.call('XDEL', stream, '0-1') -- a first write that is allowed when memory is full, so that the next is too
local made = redis.pcall('XGROUP', 'CREATE', stream, group, '0', 'MKSTREAM')
if made.err and not string.find(made.err, 'BUSYGROUP', 1, true) then return made end

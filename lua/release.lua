-- Removes stream entries that have been dealt with from the group and from the stream.
--
-- KEYS[1]  stream  stream  completions or failures of a spout
-- ARGV[1]  group   of consumers
-- ARGV[2]  entry   id; repeated
-- Returns  how many were still held by the group
-- Emits    nothing

local stream, group = KEYS[1], ARGV[1]
local entries = {}
for i = 2, #ARGV do entries[#entries + 1] = ARGV[i] end
local held = redis.call('XACK', stream, group, unpack(entries))
redis.call('XDEL', stream, unpack(entries))
return held

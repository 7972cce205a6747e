-- Hands out block sequence numbers of a spout. They never run behind the clock (4 a millisecond), so that numbers
-- whose allocation a crashed server forgot are not handed out again.
--
-- KEYS[1]  sequences  hash  spout -> next sequence number
-- KEYS[2]  spouts     hash  name -> number
-- ARGV[1]  name       of the spout
-- ARGV[2]  spout      its number
-- ARGV[3]  amount     of sequence numbers
-- ARGV[4]  now_ms     clock override for tests; empty: the server's clock
-- Returns  the first of them; error LOST if the spout does not have that number any more
-- Emits    nothing

local sequences, spouts, name, spout = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local amount, now_ms = tonumber(ARGV[3]), tonumber(ARGV[4])
local EPOCH_MS, A_MILLISECOND, LIMIT = 1767225600000, 4, 2 ^ 42
if redis.call('HGET', spouts, name) ~= spout then
  return redis.error_reply('LOST the spouts of this namespace are gone, and so is all it held')
end
if not now_ms then
  local time = redis.call('TIME')
  now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
end
local first = tonumber(redis.call('HGET', sequences, spout) or 0)
first = math.max(first, (now_ms - EPOCH_MS) * A_MILLISECOND)
if first + amount > LIMIT then return redis.error_reply('ERR all sequence numbers of this spout are used') end
redis.call('HSET', sequences, spout, string.format('%.0f', first + amount))
return string.format('%.0f', first)

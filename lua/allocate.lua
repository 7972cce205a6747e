-- Hands out block sequence numbers of a spout. They never run behind the clock (4 a millisecond), so that numbers
-- whose allocation a crashed server forgot are not handed out again.
--
-- KEYS[1]  sequences  hash  spout -> next sequence number
-- ARGV[1]  spout      number
-- ARGV[2]  amount     of sequence numbers
-- ARGV[3]  now_ms     clock override for tests; empty: the server's clock
-- Returns  the first of them
-- Emits    nothing

local sequences, spout, amount, now_ms = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local EPOCH_MS, A_MILLISECOND, LIMIT = 1767225600000, 4, 2 ^ 42
if not now_ms then
  local time = redis.call('TIME')
  now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
end
local first = tonumber(redis.call('HGET', sequences, spout) or 0)
first = math.max(first, (now_ms - EPOCH_MS) * A_MILLISECOND)
if first + amount > LIMIT then return redis.error_reply('ERR all sequence numbers of this spout are used') end
redis.call('HSET', sequences, spout, string.format('%.0f', first + amount))
return string.format('%.0f', first)

-- exports: take_sequences
-- needs: numbers
-- Hands out block sequence numbers of a spout. They never run behind the clock (4 a millisecond), so that numbers
-- whose allocation a crashed server forgot, or another program wrote over, are not handed out again.

local EPOCH_MS, A_MILLISECOND, LIMIT = 1767225600000, 4, 2 ^ 42

-- Returns the first of them as a text, or nothing when all are used.
local function take_sequences(sequences, spout, amount, now_ms)
  local first = whole_number(redis.call('HGET', sequences, spout), LIMIT) or 0
  first = math.max(first, (now_ms - EPOCH_MS) * A_MILLISECOND)
  if first + amount > LIMIT then return nil end
  redis.call('HSET', sequences, spout, string.format('%.0f', first + amount))
  return string.format('%.0f', first)
end

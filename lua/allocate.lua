-- needs: time, sequences
-- Hands out block sequence numbers of a spout.
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
local amount, now_ms = tonumber(ARGV[3]), tonumber(ARGV[4]) or server_ms()
if redis.call('HGET', spouts, name) ~= spout then
  return redis.error_reply('LOST the spouts of this namespace are gone, and so is all it held')
end
return take_sequences(sequences, spout, amount, now_ms)
  or redis.error_reply('ERR all sequence numbers of this spout are used')

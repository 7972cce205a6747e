-- needs: shard, clock
-- Reads one page of a bucket. The bucket is named by the tick at which it was the nursery, so that a listing stays
-- in the same bucket when a rotation renames it midway. Reads only.
--
-- KEYS     as in lib/shard.lua
-- ARGV[4]  born    tick at which the bucket was the nursery
-- ARGV[5]  cursor  '0' to begin
-- ARGV[6]  count   of blocks, about
-- Returns  cursor ('0': the bucket has been read), {block, head, ids, ..}, now_ms
-- Emits    nothing

local born, cursor, amount = tonumber(args[4]), args[5], args[6]
local bucket = current_tick() - born
if bucket < NURSERY or bucket > EXPIRED then return { '0', {}, now_ms() } end -- drained since
local scanned = call('HSCAN', keys[HEADS + bucket], cursor, 'COUNT', amount)
local fields, result = scanned[2], {}
for i = 1, #fields, 2 do
  result[#result + 1] = fields[i]
  result[#result + 1] = fields[i + 1]
  result[#result + 1] = call('HGET', keys[IDS + bucket], fields[i]) or ''
end
return { scanned[1], result, now_ms() }

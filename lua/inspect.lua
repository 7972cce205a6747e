-- needs: bytes, shard, clock, head, lookup, finished, xor, early_acks
-- Looks one root up. Reads only.
--
-- KEYS     as in lib/shard.lua
-- ARGV[4]  block  8 bytes
-- ARGV[5]  index  of the root in it
-- Returns  bucket (false: none, buckets: expired), head, ack_val, ids, tick, turned_ms, finished (1 or 0), now_ms
-- Emits    nothing

local block, index = args[4], tonumber(args[5])
local found, bucket_of = locate({ block })
local state = call('HMGET', meta, 'tick', 'turned_ms')
local gone = recently_finished({ block }, found)
local records = load_records({ block }, found, bucket_of)
local bucket, ack_val, packed_ids = bucket_of[1] or false, '', ''
if records[1] then
  ack_val = sub(each_val(records[1].vals, records[1].n), 8 * index + 1, 8 * index + 8)
  if records[1].words ~= '' then ack_val = xor_word(ack_val == '' and ZERO or ack_val, early_word(records[1], index)) end
  packed_ids = call('HGET', keys[IDS + bucket], block) or ''
end
return { bucket, found[1] or '', ack_val, packed_ids, state[1] or '0', state[2] or '0', gone[1] and 1 or 0, now_ms() }

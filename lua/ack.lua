-- needs: bytes, shard, batch, clock, lookup, finished, head, tokens, ack_vals, early_acks, settle, changes, acks
-- Applies one batch of ack vals, folded per root, to the blocks of one shard; roots that reach zero are complete.
-- A block without a record gets an orphan that keeps the ack vals for its init; those of roots that it cannot have are
-- late.
--
-- KEYS     as in lib/shard.lua
-- ARGV[4]  token    name(8) sequence(4): a block that has seen it is left alone
-- ARGV[5]  restart  '1': ack vals restart the clock of their roots
-- ARGV[6]  sparse   bytes: block(8) count(2) then count times index(2) ack_val(8); repeated
-- ARGV[7]  dense    block(8) count(2) of roots touched
-- ARGV[8]  ..       ack vals, 8 bytes for each root from index 0 on, or 8 for all that are touched; 7 and 8 repeated
-- Returns  applied, completed, late, duplicates: counts of ack vals, and of roots for completed; error EARLY, full
-- Emits    one entry per spout to its completion stream

local token, restart = args[4], args[5] == '1'
call('DEL', scratch_a) -- a first write that is allowed when memory is full, so that all others are too
local blocks, amounts, words = read_pairs(args[6])
local vectors = {}
for i = 7, #args, 2 do
  local position = #blocks + 1
  blocks[position], amounts[position] = unpack_bytes('>c8H', args[i])
  vectors[position] = args[i + 1]
end
local applied, late, duplicates = 0, 0, 0

local found, bucket_of = locate(blocks)
local records = load_records(blocks, found, bucket_of)
local gone = recently_finished(blocks, found)
local echoing = {}
for i, bucket in pairs(bucket_of) do
  if has(records[i], ECHO) then echoing[bucket] = true end
end
for bucket in pairs(echoing) do call('HLEN', keys[IDS + bucket]) end -- refuse before scratch keys are in use
local tick = restart and current_tick()

-- Returns how many ack vals were late.
local function ack_initialised(i, record, bucket)
  local zeros, touched, strays
  if words[i] then
    zeros, touched, strays = apply_pairs(record, words[i])
  else
    zeros, touched, strays = apply_vector(record, vectors[i], math.max(amounts[i], #vectors[i] / 8), restart)
  end
  if restart and #touched > 0 then
    restart_clock(record, touched, tick)
    note_newest()
  end
  complete_zeros(blocks[i], record, bucket, zeros)
  return strays
end

for i = 1, #blocks do
  local record, bucket = records[i] or new_record(0, '', 0), bucket_of[i] or NURSERY
  if gone[i] then
    late = late + amounts[i]
  elseif seen(record, token) then
    duplicates = duplicates + amounts[i]
  else
    local strays
    if has(record, INITIALISED) then
      strays = ack_initialised(i, record, bucket)
    else
      strays = words[i] and keep_words(record, words[i]) or keep_vector(record, each_val(vectors[i], amounts[i]))
      if strays < amounts[i] then bucket = refresh_orphan(blocks[i], record, bucket) end
    end
    if has(record, INITIALISED) or strays < amounts[i] then settle(blocks[i], record, bucket, true) end
    late, applied = late + strays, applied + amounts[i] - strays
  end
end

return reply_to_acks(applied, late, duplicates)

-- needs: shard, clock, lookup, finished, head, early_acks, edges, ack_vals, settle, changes, acks
-- Acks deliveries one by one, each known by its edge: one that was acked before, by whoever and in whatever batch, is
-- left alone. Roots that reach zero are complete. A block without a record gets an orphan, as in ack.lua.
--
-- KEYS     as in lib/shard.lua
-- ARGV[4]  restart   '1': ack vals restart the clock of their roots
-- ARGV[5]  block     8 bytes; each block once
-- ARGV[6]  edges     edge(8) index(4) of each delivery, none of them twice
-- ARGV[7]  ack_vals  8 bytes for each delivery; empty: its edge
-- ARGV[8]  vector    these, folded: 8 bytes for each root from index 0 on; empty if few; 5 to 8 repeated
-- Returns  applied, completed, late, duplicates: counts of deliveries, and of roots for completed; error EARLY, full
-- Emits    one entry per spout to its completion stream

local restart = args[4] == '1'
call('DEL', scratch_a) -- a first write that is allowed when memory is full, so that all others are too
local blocks, applied, late, duplicates = {}, 0, 0, 0
for i = 5, #args, 4 do blocks[#blocks + 1] = args[i] end

local found, bucket_of = locate(blocks)
local records = load_records(blocks, found, bucket_of)
local gone = recently_finished(blocks, found)
for bucket = NURSERY, EXPIRED do call('HLEN', keys[IDS + bucket]) end -- refuse before scratch keys are in use
local tick = restart and current_tick()

for i = 1, #blocks do
  local edges, ack_vals, vector = args[4 * i + 2], args[4 * i + 3], args[4 * i + 4]
  local record, bucket = records[i] or new_record(0, '', 0), bucket_of[i] or NURSERY
  local known = acked_before(record.tokens, edges)
  local is_whole = has(record, INITIALISED) and not record.bitmap and not restart and not next(known)
  if gone[i] then
    late = late + #edges / 12
  elseif is_whole and vector ~= '' and #vector <= 8 * record.n then
    record.tokens, applied = record.tokens .. edges, applied + #edges / 12
    complete_zeros(blocks[i], record, bucket, (apply_vector(record, vector, #vector / 8, false)))
    settle(blocks[i], record, bucket, true)
  else
    local words, new, strays = sift_edges(record, known, edges, ack_vals)
    record.tokens, applied, late = record.tokens .. table.concat(new), applied + #new, late + strays
    duplicates = duplicates + #edges / 12 - #new - strays
    if #new > 0 and has(record, INITIALISED) then
      local zeros, touched = apply_pairs(record, words)
      if restart then
        restart_clock(record, touched, tick)
        note_newest()
      end
      complete_zeros(blocks[i], record, bucket, zeros)
      settle(blocks[i], record, bucket, true)
    elseif #new > 0 then
      keep_words(record, words)
      settle(blocks[i], record, refresh_orphan(blocks[i], record, bucket), true)
    end
  end
end

return reply_to_acks(applied, late, duplicates)

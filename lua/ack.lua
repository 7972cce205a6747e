-- uses: shard, record, items, finished, outcome, xor
-- Applies one batch of ack vals, folded per root, to the blocks of one shard; roots that reach zero are complete.
-- A block without a record gets an orphan that keeps the ack vals for its init.
--
-- KEYS     as in lib/shard.lua
-- ARGV[4]  token    name(8) sequence(4): a block that has seen it is left alone
-- ARGV[5]  restart  '1': ack vals restart the clock of their roots
-- ARGV[6]  sparse   bytes: block(8) count(2) then count times index(2) ack_val(8); repeated
-- ARGV[7]  dense    block(8) count(2) of roots touched
-- ARGV[8]  ..       ack vals, 8 bytes for each root from index 0 on; 7 and 8 repeated
-- Returns  applied, completed, late, duplicates: counts of ack vals, and of roots for completed
-- Emits    one entry per spout to its completion stream

local token, restart = args[4], args[5] == '1'
call('DEL', scratch_a) -- a first write that is allowed when memory is full, so that all others are too
local blocks, amounts, deltas, words = {}, {}, {}, {}
local applied, completed, late, duplicates = 0, 0, 0, 0

local at = 1
while at <= #args[6] do
  local block, amount = unpack_bytes('>c8H', args[6], at)
  local by_index, position = {}, #blocks + 1
  for i = 0, amount - 1 do
    local index, word = unpack_bytes('>Hc8', args[6], at + 10 + 10 * i)
    by_index[index] = word
  end
  blocks[position], amounts[position], words[position] = block, amount, by_index
  at = at + 10 + 10 * amount
end
for i = 7, #args, 2 do
  local position = #blocks + 1
  blocks[position], amounts[position] = unpack_bytes('>c8H', args[i])
  deltas[position] = args[i + 1]
end

-- Both return the roots that became complete (nil: all of the block) and, in restart mode, those that were touched.
local function ack_sparse(record, by_index)
  local changed, zeros, touched = {}, {}, {}
  for index, word in pairs(by_index) do
    if is_live(record, index) then
      local new = xor_word(sub(record.vals, 8 * index + 1, 8 * index + 8), word)
      changed[index] = new
      touched[#touched + 1] = index
      if new == ZERO then zeros[#zeros + 1] = index end
    else
      late = late + 1
    end
  end
  table.sort(zeros)
  if #zeros < record.live then record.vals = replace_words(record.vals, changed) end
  return zeros, touched
end

local function ack_dense(record, delta)
  if record.bitmap or #delta > 8 * record.n then
    late = late + count_stray(record, delta, record.bitmap and 0 or record.n)
    delta = sub(delta, 1, 8 * record.n)
  end
  local touched = {}
  local live = restart and live_indexes(record) or touched
  for i = 1, #live do
    local word = sub(delta, 8 * live[i] + 1, 8 * live[i] + 8)
    if word ~= '' and word ~= ZERO then touched[#touched + 1] = live[i] end
  end
  record.vals = xor(record.vals, delta)
  return zero_indexes(record, record.vals), touched
end

local found, bucket_of = locate(blocks)
local records = load_records(blocks, found, bucket_of)
local gone = recently_finished(blocks, found)
local echoing = {}
for i, bucket in pairs(bucket_of) do
  if has(records[i], ECHO) then echoing[bucket] = true end
end
for bucket in pairs(echoing) do call('HLEN', keys[IDS + bucket]) end -- refuse before scratch keys are in use
local tick = restart and tonumber(call('HGET', meta, 'tick') or 0)

local function ack_block(i, record, bucket)
  local block, zeros, touched = blocks[i], nil, nil
  if words[i] then
    zeros, touched = ack_sparse(record, words[i])
  else
    zeros, touched = ack_dense(record, deltas[i])
  end
  if restart and #touched > 0 then
    restart_clock(record, touched, tick)
    newest_ms = now_ms()
  end
  if not zeros or #zeros > 0 then
    completed = completed + (zeros and #zeros or record.live)
    complete(block, record, zeros, has(record, ECHO) and call('HGET', keys[IDS + bucket], block) or '')
  end
end

for i = 1, #blocks do
  local record, bucket = records[i] or new_record(0, ''), bucket_of[i] or NURSERY
  if gone[i] then
    late = late + amounts[i]
  elseif seen(record, token) then
    duplicates = duplicates + amounts[i]
  else
    local late_before = late
    if has(record, INITIALISED) then
      ack_block(i, record, bucket)
    else
      bucket = refresh_orphan(blocks[i], record, bucket)
      record.vals = xor(record.vals, deltas[i] or replace_words('', words[i]))
      record.n = #record.vals / 8
    end
    settle(blocks[i], record, bucket, true)
    applied = applied + amounts[i] - (late - late_before)
  end
end

count('late', late)
count('duplicates', duplicates)
flush()
return { applied, completed, late, duplicates }

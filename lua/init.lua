-- uses: shard, record, early, items, finished, outcome, xor
-- Initialises blocks of roots: from now on their clock runs and they can complete. What arrived before the init (ack
-- vals, fails) counts now. A block that is initialised, or finished lately, is left alone.
--
-- KEYS     as in lib/shard.lua
-- ARGV[4]  quiet  '1': completions of these roots are counted but not put into the stream
-- ARGV[5]  echo   '1': completions carry the message ids, as failures always do
-- ARGV[6]  block  8 bytes
-- ARGV[7]  vals   the ack val of each root, 8 bytes each
-- ARGV[8]  ids    packed message ids and attempts (lib/items.lua), or empty; 6 to 8 repeated
-- Returns  initialised, completed, failed, duplicates: counts of roots; error LOST if the settings are gone
-- Emits    entries to the completion and failure streams for roots that were done before they began

local flags = INITIALISED + (args[4] == '1' and QUIET or 0) + (args[5] == '1' and ECHO or 0)
local initialised, completed, failed, duplicates, late = 0, 0, 0, 0, 0
local blocks = {}
for i = 6, #args, 3 do blocks[#blocks + 1] = args[i] end

-- Takes over what an orphan kept. Fails come first: a root that failed and is zero has failed.
local function adopt(block, record, packed_ids, orphan)
  record.tokens = orphan.tokens
  record.vals = xor(record.vals, sub(orphan.vals, 1, 8 * record.n))
  late = late + count_stray(record, orphan.vals, record.n)
  each_early_fail(orphan.fails, function(cause, indexes)
    local live = {}
    for i = 1, #indexes do
      if is_live(record, indexes[i]) then live[#live + 1] = indexes[i] end
    end
    late = late + #indexes - #live
    failed = failed + #live
    if #live > 0 then fail(block, record, live, packed_ids, cause) end
  end)
end

local found, bucket_of = locate(blocks)
local records = load_records(blocks, found, bucket_of)
local gone = recently_finished(blocks, found)
newest_ms = now_ms()
if not call('HGET', meta, 'timeout_ms') then
  return redis.error_reply('LOST the settings of this namespace are gone, and so is all it held')
end

for i = 1, #blocks do
  local block, new_vals, packed_ids = blocks[i], args[4 + 3 * i], args[5 + 3 * i]
  local n, orphan = #new_vals / 8, records[i]
  if gone[i] or (orphan and has(orphan, INITIALISED)) then
    duplicates = duplicates + n
  else
    local record = new_record(flags + (packed_ids ~= '' and HAS_IDS or 0), new_vals)
    initialised = initialised + n
    count('initialised:' .. spout_of(block), n)
    if orphan then
      remove(block, orphan, bucket_of[i])
      adopt(block, record, packed_ids, orphan)
    end
    local zeros = zero_indexes(record, record.vals)
    if record.live > 0 and (not zeros or #zeros > 0) then
      completed = completed + (zeros and #zeros or record.live)
      complete(block, record, zeros, has(record, ECHO) and packed_ids or '')
    end
    settle(block, record, NURSERY, true)
    if packed_ids ~= '' and record.live > 0 then queue(puts, IDS + NURSERY, block, packed_ids) end
  end
end

count('duplicates', duplicates)
count('late', late)
flush()
return { initialised, completed, failed, duplicates }

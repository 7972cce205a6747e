-- needs: bytes, shard, clock, lookup, finished, head, early, early_acks, live, xor, ids, events, settle, changes
-- Initialises blocks of roots: from now on their clock runs and they can complete. What arrived before the init (ack
-- vals, fails) counts now. A block that is already initialised, or finished recently, is left alone.
--
-- KEYS     as in lib/shard.lua
-- ARGV[4]  quiet  '1': completions of these roots are counted but not put into the stream
-- ARGV[5]  echo   '1': completions carry the message ids, as failures always do
-- ARGV[6]  until  ms since 1970 after which the init comes too late; empty: never
-- ARGV[7]  block  block(8) count(2) of its roots
-- ARGV[8]  vals   the ack val of each root, 8 bytes each; or 8 bytes for all, if there are more than INLINE
-- ARGV[9]  ids    packed message ids and attempts (lib/ids.lua), or empty; 7 to 9 repeated
-- Returns  initialised, completed, failed, duplicates: counts of roots; error LOST if the settings are gone, TOOLATE
-- Emits    entries to the completion and failure streams for roots that were done before their init

if args[6] ~= '' and now_ms() > tonumber(args[6]) then
  return redis.error_reply('TOOLATE the roots of this init may be over and forgotten by now')
end
local flags = INITIALISED + (args[4] == '1' and QUIET or 0) + (args[5] == '1' and ECHO or 0)
local initialised, completed, failed, duplicates, late = 0, 0, 0, 0, 0
local blocks, counts = {}, {}
for i = 7, #args, 3 do
  local position = #blocks + 1
  blocks[position], counts[position] = unpack_bytes('>c8H', args[i])
end

-- Takes over what an orphan kept. Fails come first: a root that failed and is zero has failed.
local function adopt(block, record, packed_ids, orphan)
  record.tokens = orphan.tokens
  record.vals = each_val(record.vals, record.n)
  if orphan.vals ~= '' then record.vals = xor(record.vals, sub(orphan.vals, 1, 8 * record.n)) end
  late = late + count_stray(record, orphan.vals, record.n) + adopt_words(record, orphan.words)
  each_early_fail(orphan.fails, function(cause, indexes)
    local live = live_among(record, indexes)
    late = late + #indexes - #live
    failed = failed + #live
    if #live > 0 then fail(block, record, live, packed_ids, cause) end
  end)
end

local found, bucket_of = locate(blocks)
local records = load_records(blocks, found, bucket_of)
local gone = recently_finished(blocks, found)
note_newest()
if not call('HGET', meta, 'timeout_ms') then
  return redis.error_reply('LOST the settings of this namespace are gone, and so is all it held')
end

for i = 1, #blocks do
  local block, new_vals, packed_ids = blocks[i], args[5 + 3 * i], args[6 + 3 * i]
  local n, orphan = counts[i], records[i]
  if gone[i] or (orphan and has(orphan, INITIALISED)) then
    duplicates = duplicates + n
  else
    local record = new_record(flags + (packed_ids ~= '' and HAS_IDS or 0), new_vals, n)
    initialised = initialised + n
    count('initialised:' .. spout_of(block), n)
    if packed_ids ~= '' then count('replayed:' .. spout_of(block), replays_in(packed_ids, n)) end
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
    if packed_ids ~= '' and record.live > 0 then put_field(IDS + NURSERY, block, packed_ids) end
  end
end

count('duplicates', duplicates)
count('late', late)
flush()
return { initialised, completed, failed, duplicates }

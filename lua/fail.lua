-- needs: shard, batch, lookup, finished, head, sound, early, live, events, settle, changes
-- Fails roots at once, whatever their ack val. For a root without init the fail is kept and counts when the init comes.
--
-- KEYS     as in lib/shard.lua
-- ARGV[4]  component  name of what failed them, at most 255 bytes
-- ARGV[5]  error      short text
-- ARGV[6]  fatal      '1': not to be replayed
-- ARGV[7]  reason     'failed', or 'timeout' if a runner with a shorter timeout than the namespace says so
-- ARGV[8]  roots      bytes: block(8) count(2) then count times index(2); repeated
-- Returns  failed, kept, late: counts of roots; error EARLY and the bytes there is room for, if nothing more is kept
-- Emits    one entry per spout to its failure stream

call('DEL', scratch_a) -- a first write that is allowed when memory is full, so that all others are too
local cause = { reason = args[7], component = args[4], error = args[5], fatal = tonumber(args[6]) or 0 }
local blocks, indexes = read_roots(args[8])
local failed, kept, late = 0, 0, 0

local found, bucket_of = locate(blocks)
local gone = recently_finished(blocks, found)

for i = 1, #blocks do
  local block, bucket = blocks[i], bucket_of[i] or NURSERY
  local record = found[i] and read_head(found[i]) or new_record(0, '', 0)
  if gone[i] then
    late = late + #indexes[i]
  elseif has(record, INITIALISED) then
    local live = live_among(record, indexes[i])
    late = late + #indexes[i] - #live
    if #live > 0 then
      failed = failed + #live
      local packed_ids = has(record, HAS_IDS) and call('HGET', keys[IDS + bucket], block)
      fail(block, record, live, sound_ids(block, packed_ids, record.n, bucket), cause)
      settle(block, record, bucket, false)
    end
  else
    record.vals = record.vals or call('HGET', keys[VALS + bucket], block)
    if not record.vals then
      set_aside(block, bucket)
      record, bucket = new_record(0, '', 0), NURSERY
    end
    local able = {}
    for j = 1, #indexes[i] do
      if possible(indexes[i][j]) then able[#able + 1] = indexes[i][j] end
    end
    local new = keep_fail(record, cause, able)
    kept, late = kept + new, late + #indexes[i] - new
    if #able > 0 then settle(block, record, refresh_orphan(block, record, bucket), true) end
  end
end

count('late', late)
local refusal = early_refusal()
if refusal then return refusal end
flush()
return { failed, kept, late }

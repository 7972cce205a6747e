-- uses: shard, record, items, finished, outcome
-- Fails roots at once, whatever their ack val. For a root without init the fail is kept and counts when the init comes.
--
-- KEYS     as in lib/shard.lua
-- ARGV[4]  component  name of what failed them, at most 255 bytes
-- ARGV[5]  error      short text
-- ARGV[6]  fatal      '1': not to be replayed
-- ARGV[7]  roots      bytes: block(8) count(2) then count times index(2); repeated
-- Returns  failed, kept, late: counts of roots
-- Emits    one entry per spout to its failure stream

call('DEL', scratch_a) -- a first write that is allowed when memory is full, so that all others are too
local MAX_KEPT_TEXT = 50000
local cause = { reason = 'failed', component = args[4], error = args[5], fatal = tonumber(args[6]) or 0 }
local blocks, indexes = read_indexes(args[7])
local failed, kept, late = 0, 0, 0

local function is_kept(record, index)
  local at = 1
  while at <= #record.fails do
    local known, _, component_len, error_len = unpack_bytes('>HBBH', record.fails, at)
    if known == index then return true end
    at = at + 6 + component_len + error_len
  end
  return false
end

-- Keeps a fail for the init. The first one of a root stands; past a size the texts are left out.
local function keep(record, index)
  if is_kept(record, index) then
    late = late + 1
    return
  end
  local text = #record.fails < MAX_KEPT_TEXT and cause.component .. cause.error or ''
  local component_len = text ~= '' and #cause.component or 0
  local error_len = text ~= '' and #cause.error or 0
  record.fails = record.fails .. pack('>HBBH', index, cause.fatal, component_len, error_len) .. text
  kept = kept + 1
end

local found, bucket_of = locate(blocks)
local gone = recently_finished(blocks, found)

for i = 1, #blocks do
  local block, bucket = blocks[i], bucket_of[i] or NURSERY
  local record = found[i] and read_head(found[i]) or new_record(0, '')
  if gone[i] then
    late = late + #indexes[i]
  elseif has(record, INITIALISED) then
    local live = {}
    for _, index in ipairs(indexes[i]) do
      if is_live(record, index) then live[#live + 1] = index end
    end
    late = late + #indexes[i] - #live
    if #live > 0 then
      failed = failed + #live
      fail(block, record, live, has(record, HAS_IDS) and call('HGET', keys[IDS + bucket], block) or '', cause)
      settle(block, record, bucket, false)
    end
  else
    for _, index in ipairs(indexes[i]) do keep(record, index) end
    newest_ms = now_ms()
    settle(block, record, bucket, false)
  end
end

count('late', late)
flush()
return { failed, kept, late }

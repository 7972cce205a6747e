-- uses: shard, record, early, items, finished, outcome
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
local cause = { reason = 'failed', component = args[4], error = args[5], fatal = tonumber(args[6]) or 0 }
local blocks, indexes = read_indexes(args[7])
local failed, kept, late = 0, 0, 0

local MUCH_KEPT, SHORT = 50000, 100

-- Keeps a fail for the init. The first one of a root stands; where much is kept, error texts are cut short.
local function keep(record, list)
  local known, new = {}, {}
  each_early_fail(record.fails, function(_, indexes)
    for i = 1, #indexes do known[indexes[i]] = true end
  end)
  for i = 1, #list do
    if not known[list[i]] then new[#new + 1] = pack('>H', list[i]) end
  end
  kept, late = kept + #new, late + #list - #new
  if #new == 0 then return end
  local error = #record.fails > MUCH_KEPT and sub(cause.error, 1, SHORT) or cause.error
  local sizes = pack('>BBHH', cause.fatal, #cause.component, #error, #new)
  record.fails = record.fails .. sizes .. cause.component .. error .. table.concat(new)
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
    if not record.vals then record.vals = call('HGET', keys[VALS + bucket], block) end
    bucket = refresh_orphan(block, record, bucket)
    keep(record, indexes[i])
    settle(block, record, bucket, true)
  end
end

count('late', late)
flush()
return { failed, kept, late }

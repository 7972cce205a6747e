-- uses: shard, record, items, finished, outcome
-- Moves blocks of the expired bucket into the failure streams. Roots whose clock was restarted since are filed again,
-- in the bucket of the time when it was. Orphans are dropped and counted. Blocks that are not there are skipped, so
-- that any number of drains may run and stop anywhere.
--
-- KEYS     as in lib/shard.lua
-- ARGV[4]  blocks  8 bytes each
-- Returns  expired, orphans, refiled: counts of roots, of blocks, of roots
-- Emits    one entry per spout to its failure stream, reason 'timeout'

call('DEL', scratch_a) -- a first write that is allowed when memory is full, so that all others are too
local cause = { reason = 'timeout', component = '', error = '', fatal = 0 }
local tick = tonumber(call('HGET', meta, 'tick') or 0)
local blocks, named = {}, {}
for at = 1, #args[4], 8 do
  local block = sub(args[4], at, at + 7)
  if not named[block] then blocks[#blocks + 1] = block end
  named[block] = true
end
local found = call('HMGET', keys[HEADS + EXPIRED], unpack(blocks))
local stored_ids = call('HMGET', keys[IDS + EXPIRED], unpack(blocks))
local expired, orphans, refiled = 0, 0, 0

-- Returns the live roots that are out of time (nil: the whole block) and the bucket for the others (nil: none left).
local function judge(record)
  if not record.ticks then return nil, nil end
  local over, bucket = {}, nil
  local indexes = live_indexes(record)
  for i = 1, #indexes do
    local index = indexes[i]
    local age = tick - unpack_bytes('>I4', record.ticks, 4 * index + 1)
    if age < buckets then bucket = math.max(bucket or 1, age + 1) else over[#over + 1] = index end
  end
  if not bucket then return nil, nil end
  return over, bucket
end

for i = 1, #blocks do
  local block, record = blocks[i], found[i] and read_head(found[i])
  if record and not has(record, INITIALISED) then
    orphans = orphans + 1
    remove(block, record, EXPIRED)
  elseif record then
    local over, bucket = judge(record)
    local packed_ids = stored_ids[i] or ''
    if not over or #over > 0 then
      expired = expired + (over and #over or record.live)
      fail(block, record, over, packed_ids, cause)
    end
    if bucket then
      refiled = refiled + record.live
      record.vals = record.vals or call('HGET', keys[VALS + EXPIRED], block)
      settle(block, record, bucket, true)
      if packed_ids ~= '' then queue(puts, IDS + bucket, block, packed_ids) end
      remove(block, record, EXPIRED)
    else
      settle(block, record, EXPIRED, false)
    end
  end
end

count('orphans', orphans)
flush()
return { expired, orphans, refiled }

-- needs: bytes, shard, clock, history, head, sound, live, lone, events, settle, changes
-- Moves blocks of the expired bucket into the failure streams. Roots whose clock was restarted since are filed again,
-- in the bucket of the time when it was. Orphans are dropped and counted. Blocks that are not there are skipped, so
-- that any number of drains may run and stop anywhere.
--
-- KEYS     as in lib/shard.lua
-- ARGV[4]  blocks  8 bytes each, ascending: neighbours are marked as finished together
-- Returns  expired, orphans, refiled: counts of roots, of blocks, of roots
-- Emits    one entry per spout to its failure stream, reason 'timeout'

call('DEL', scratch_a) -- a first write that is allowed when memory is full, so that all others are too
note_history()
local cause = { reason = 'timeout', component = '', error = '', fatal = 0 }
local tick = current_tick()
local names, blocks, size, previous = args[4], {}, 0, nil -- counted: Lua searches for the length of a list
for at = 1, #names, 8 do
  local block = sub(names, at, at + 7)
  if block ~= previous then
    size = size + 1
    blocks[size] = block
  end
  previous = block
end
local found = call('HMGET', keys[HEADS + EXPIRED], unpack(blocks))
local has_ids = call('HLEN', keys[IDS + EXPIRED]) > 0
local stored_ids = has_ids and call('HMGET', keys[IDS + EXPIRED], unpack(blocks)) or {}
local expired, orphans, refiled = 0, 0, 0

-- Returns the live roots that are out of time (nil: the whole block) and the bucket for the others (nil: none left).
local function judge(record)
  if not record.ticks then return nil, nil end
  local over, bucket = {}, nil
  local indexes = live_indexes(record)
  for i = 1, #indexes do
    local index = indexes[i]
    local age = tick - extended_at(record, index) -- negative: the tick that it was is not known any more
    if age >= 0 and age < buckets then bucket = math.max(bucket or NURSERY, age) else over[#over + 1] = index end
  end
  if not bucket then return nil, nil end
  return over, bucket
end

local function drain(block, record, packed_ids)
  local over, bucket = judge(record)
  record.vals = record.vals or bucket and call('HGET', keys[VALS + EXPIRED], block)
  if bucket and not record.vals then over, bucket = nil, nil end -- gone: none of the others can complete
  if not over or #over > 0 then
    expired = expired + (over and #over or record.live)
    fail(block, record, over, packed_ids, cause)
  end
  if not bucket then return settle(block, record, EXPIRED, false) end
  refiled = refiled + record.live
  settle(block, record, bucket, true)
  if packed_ids ~= '' then put_field(IDS + bucket, block, packed_ids) end
  remove(block, record, EXPIRED)
end

local others
expired, others = fail_lone(blocks, found, stored_ids, cause)
for i = 1, #others do
  local block, head = blocks[others[i]], found[others[i]]
  if sound(block, head, EXPIRED) then
    local record = read_head(head)
    if has(record, INITIALISED) then
      drain(block, record, sound_ids(block, stored_ids[others[i]], record.n, EXPIRED))
    else
      orphans = orphans + 1
      remove(block, record, EXPIRED)
    end
  end
end

count('orphans', orphans)
flush()
return { expired, orphans, refiled }

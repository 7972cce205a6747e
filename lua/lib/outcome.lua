-- What a script call found out, gathered first and written last: until flush() nothing but scratch keys has been
-- written, so a call that is refused or fails leaves the shard as it was. Each call adds at most one entry to the
-- completion stream of a spout, and one per cause to its failure stream.

local puts, removals = {}, {} -- position of a hash among the keys -> fields and values, fields
local entries = {} -- position of a stream among the keys, with its cause -> items
local finished_blocks, counts, newest_ms = {}, {}, nil
local scratch_in_use = false

-- From here to flush() nothing that is written reaches the AOF or the replicas: it is scratch only.
local function use_scratch()
  if scratch_in_use then return end
  scratch_in_use = true
  redis.set_repl(redis.REPL_NONE)
end

local function count(counter, by)
  if by > 0 then counts[counter] = (counts[counter] or 0) + by end
end

local function queue(lists, key, first, second)
  local list = lists[key]
  if not list then
    list = {}
    lists[key] = list
  end
  list[#list + 1] = first
  list[#list + 1] = second
end

local function emit(stream, cause, block, record, indexes, packed_ids)
  entries[cause] = entries[cause] or {}
  queue(entries[cause], stream, item(block, record, indexes, packed_ids))
end

local COMPLETED = {}

-- Notes that live roots are complete. indexes: ascending, or nil for all of a block of which all are live.
local function complete(block, record, indexes, packed_ids)
  local spout = spout_of(block)
  count('completed:' .. spout, indexes and #indexes or record.live)
  if not has(record, QUIET) then emit(stream_of(spout), COMPLETED, block, record, indexes, packed_ids) end
  retire(record, indexes)
end

-- Notes that live roots failed, for one cause: a table of reason, component, error, fatal.
local function fail(block, record, indexes, packed_ids, cause)
  local spout = spout_of(block)
  count(cause.reason .. ':' .. spout, indexes and #indexes or record.live)
  emit(stream_of(spout) + 1, cause, block, record, indexes, packed_ids)
  retire(record, indexes)
end

-- Takes a record out of a bucket.
local function remove(block, record, bucket)
  queue(removals, HEADS + bucket, block)
  if record.n > INLINE then queue(removals, VALS + bucket, block) end
  if has(record, HAS_IDS) then queue(removals, IDS + bucket, block) end
end

-- Stores a record in a bucket, or takes it out of there for good once none of its roots is live.
local function settle(block, record, bucket, vals_changed)
  if record.live > 0 or not has(record, INITIALISED) then
    queue(puts, HEADS + bucket, block, write_head(record))
    if vals_changed and record.n > INLINE then queue(puts, VALS + bucket, block, record.vals) end
  else
    remove(block, record, bucket)
    finished_blocks[#finished_blocks + 1] = block
  end
end

-- Something came for an orphan: it is kept as long as if it were new, so it moves to the nursery. Returns that.
local function refresh_orphan(block, record, bucket)
  newest_ms = now_ms()
  if bucket ~= NURSERY then remove(block, record, bucket) end
  return NURSERY
end

-- Reads every key that is about to be written, so that one of a wrong type is refused while nothing is written.
local function check_types()
  for _, by_stream in pairs(entries) do
    for stream in pairs(by_stream) do call('XLEN', keys[stream]) end
  end
  for hash in pairs(puts) do call('HLEN', keys[hash]) end
  for hash in pairs(removals) do call('HLEN', keys[hash]) end
  if newest_ms or next(counts) then call('HLEN', meta) end
end

local function write_streams()
  for cause, by_stream in pairs(entries) do
    for stream, items in pairs(by_stream) do
      if cause == COMPLETED then
        call('XADD', keys[stream], '*', 'at_ms', now_ms(), 'items', table.concat(items))
      else
        call('XADD', keys[stream], '*', 'at_ms', now_ms(), 'reason', cause.reason, 'component', cause.component,
          'error', cause.error, 'fatal', cause.fatal, 'items', table.concat(items))
      end
    end
  end
end

local function flush()
  if scratch_in_use then -- before anything can be refused
    call('DEL', scratch_a, scratch_b)
    redis.set_repl(redis.REPL_ALL)
  end
  check_types()
  local bitmaps = finished_bitmaps(finished_blocks)
  if newest_ms then
    local known_ms = tonumber(call('HGET', meta, 'newest_ms')) or 0
    call('HSET', meta, 'newest_ms', math.max(newest_ms, known_ms)) -- the clock may have been set back
  end
  write_streams()
  for hash, fields in pairs(removals) do call('HDEL', keys[hash], unpack(fields)) end
  for hash, fields in pairs(puts) do call('HSET', keys[hash], unpack(fields)) end
  if #bitmaps > 0 then call('HSET', keys[FINISHED + 1], unpack(bitmaps)) end
  for counter, by in pairs(counts) do call('HINCRBY', meta, counter, by) end
end

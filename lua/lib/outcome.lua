-- What a script call found out, gathered first and written last: until flush() nothing but scratch keys has been
-- written, so a call that is refused or fails leaves the shard as it was. Each call adds at most one entry to the
-- completion stream of a spout, and one per cause to its failure stream.

local completed_items, failed_items = {}, {}
local put_heads, put_vals, put_ids, removed = {}, {}, {}, {}
local finished_blocks, counts, newest_ms = {}, {}, nil

local function count(counter, by)
  counts[counter] = (counts[counter] or 0) + by
end

local function queue(lists, key, first, second)
  local list = lists[key] or {}
  lists[key] = list
  list[#list + 1] = first
  list[#list + 1] = second
end

local function retire_all_or(record, indexes)
  if indexes then retire(record, indexes) else record.live = 0 end
end

-- Notes that live roots are complete. indexes: ascending, or nil for all of a block of which all are live.
local function complete(block, record, indexes, packed_ids)
  local spout = spout_of(block)
  count('completed:' .. spout, indexes and #indexes or record.n)
  if not has(record, QUIET) then queue(completed_items, spout, item(block, record, indexes, packed_ids)) end
  retire_all_or(record, indexes)
end

-- Notes that live roots failed, for one cause: a table of reason, component, error, fatal.
local function fail(block, record, indexes, packed_ids, cause)
  local spout = spout_of(block)
  count(cause.reason .. ':' .. spout, indexes and #indexes or record.n)
  failed_items[cause] = failed_items[cause] or {}
  queue(failed_items[cause], spout, item(block, record, indexes, packed_ids))
  retire_all_or(record, indexes)
end

-- Stores a record in a bucket, or takes it out of there for good once none of its roots is live.
local function settle(block, record, bucket, vals_changed)
  if record.live > 0 then
    queue(put_heads, bucket, block, write_head(record))
    if vals_changed and record.n > INLINE then queue(put_vals, bucket, block, record.vals) end
  else
    queue(removed, bucket, block)
    finished_blocks[#finished_blocks + 1] = block
  end
end

-- Reads every key that is about to be written, so that one of a wrong type is refused while nothing is written.
local function check_types()
  for spout in pairs(completed_items) do call('XLEN', completion_stream[spout]) end
  for _, by_spout in pairs(failed_items) do
    for spout in pairs(by_spout) do call('XLEN', failure_stream[spout]) end
  end
  for bucket in pairs(put_heads) do call('HLEN', heads[bucket]) end
  for bucket in pairs(put_vals) do call('HLEN', vals[bucket]) end
  for bucket in pairs(put_ids) do call('HLEN', ids[bucket]) end
  for bucket in pairs(removed) do
    call('HLEN', vals[bucket])
    call('HLEN', ids[bucket])
  end
end

local function write_streams()
  for spout, items in pairs(completed_items) do
    call('XADD', completion_stream[spout], '*', 'at_ms', now_ms, 'items', table.concat(items))
  end
  for cause, by_spout in pairs(failed_items) do
    for spout, items in pairs(by_spout) do
      call('XADD', failure_stream[spout], '*', 'at_ms', now_ms, 'reason', cause.reason, 'component',
        cause.component, 'error', cause.error, 'fatal', cause.fatal, 'items', table.concat(items))
    end
  end
end

local function flush()
  check_types()
  local bitmaps = finished_bitmaps(finished_blocks)
  if newest_ms then call('HSET', meta, 'newest_ms', newest_ms) end
  write_streams()
  for bucket, list in pairs(removed) do
    call('HDEL', heads[bucket], unpack(list))
    call('HDEL', vals[bucket], unpack(list))
    call('HDEL', ids[bucket], unpack(list))
  end
  for bucket, list in pairs(put_heads) do call('HSET', heads[bucket], unpack(list)) end
  for bucket, list in pairs(put_vals) do call('HSET', vals[bucket], unpack(list)) end
  for bucket, list in pairs(put_ids) do call('HSET', ids[bucket], unpack(list)) end
  if #bitmaps > 0 then call('HSET', finished[1], unpack(bitmaps)) end
  for counter, by in pairs(counts) do call('HINCRBY', meta, counter, by) end
  redis.set_repl(redis.REPL_NONE)
  call('DEL', scratch_a, scratch_b)
  redis.set_repl(redis.REPL_ALL)
end

-- exports: complete, fail
-- needs: shard, head, live, items, latency, components, changes
-- Final events: live roots of a record complete or fail, and are no longer live.

local COMPLETED = {}

-- indexes: ascending, or nil for all live roots of the block.
local function complete(block, record, indexes, packed_ids)
  local spout = spout_of(block)
  local amount = indexes and #indexes or record.live
  count('completed:' .. spout, amount)
  note_latency(spout, record.birth, amount)
  if not has(record, QUIET) then
    add_item(stream_of(spout), COMPLETED, write_item(block, record, indexes, packed_ids))
  end
  retire(record, indexes)
end

-- cause: a table of reason, component, error, fatal.
local function fail(block, record, indexes, packed_ids, cause)
  local spout = spout_of(block)
  local amount = indexes and #indexes or record.live
  count(cause.reason .. ':' .. spout, amount)
  if cause.reason == 'failed' then count(component_counter(cause.component), amount) end
  add_item(stream_of(spout) + 1, cause, write_item(block, record, indexes, packed_ids))
  retire(record, indexes)
end

-- exports: settle, remove, refresh_orphan, early_refusal
-- needs: numbers, shard, head, scratch, finished, changes
-- Where a record goes when a call is done with it.

local MOST_EARLY = 64 * 1024 * 1024 -- bytes that a namespace keeps for roots without an init, over all shards

-- Counts what is kept for roots without an init.
local function count_early(record, bytes)
  count('early_bytes', bytes - (record.kept or 0))
  record.kept = bytes
end

-- An error reply if this call keeps more for roots without an init than there is room for.
local function early_refusal()
  if counted('early_bytes') <= 0 then return end
  local most = math.floor(MOST_EARLY / (tonumber(call('HGET', meta, 'shards')) or 1))
  local stored = call('HGET', counters, 'early_bytes')
  local known = whole_number(stored or 0, most)
  free_scratch()
  if not known then call('HSET', counters, 'early_bytes', 0) end -- not what was counted here: count from now on
  if (known or 0) + counted('early_bytes') <= most then return end
  redis.pcall('HINCRBY', counters, 'early_refused', 1)
  return redis.error_reply(string.format('EARLY %.0f', most))
end

-- Takes a record out of a bucket.
local function remove(block, record, bucket)
  if not has(record, INITIALISED) then count_early(record, 0) end
  delete_field(HEADS + bucket, block)
  if record.n > INLINE then delete_field(VALS + bucket, block) end
  if has(record, HAS_IDS) then delete_field(IDS + bucket, block) end
end

-- Stores a record in a bucket, or takes it out of there for good once none of its roots is live.
local function settle(block, record, bucket, vals_changed)
  if record.live > 0 or not has(record, INITIALISED) then
    local head = write_head(record)
    put_field(HEADS + bucket, block, head)
    if not has(record, INITIALISED) then
      count_early(record, RECORD_BYTES + #head + (record.n > INLINE and #record.vals or 0))
    end
    if vals_changed and record.n > INLINE then put_field(VALS + bucket, block, record.vals) end
  else
    remove(block, record, bucket)
    mark_finished(block)
  end
end

-- Something came for an orphan: it is kept as long as if it were new, so it moves to the nursery. Returns that.
local function refresh_orphan(block, record, bucket)
  note_newest()
  if bucket ~= NURSERY then remove(block, record, bucket) end
  return NURSERY
end

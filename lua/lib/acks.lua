-- exports: complete_zeros, reply_to_acks
-- needs: shard, head, sound, events, settle, changes
-- What acks by token and acks by edges have in common once the ack vals are in a record.

local completed = 0

-- Completes the roots whose ack vals have become zero; nil for all live roots of the block.
local function complete_zeros(block, record, bucket, zeros)
  if zeros and #zeros == 0 then return end
  completed = completed + (zeros and #zeros or record.live)
  local packed_ids = has(record, ECHO) and call('HGET', keys[IDS + bucket], block)
  complete(block, record, zeros, sound_ids(block, packed_ids, record.n, bucket))
end

-- Counts and writes all that the call changes. Returns its reply, or the error that refuses it.
local function reply_to_acks(applied, late, duplicates)
  count('acked', applied)
  count('late', late)
  count('duplicates', duplicates)
  local refusal = early_refusal()
  if refusal then return refusal end
  flush()
  return { applied, completed, late, duplicates }
end

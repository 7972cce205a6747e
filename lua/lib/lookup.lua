-- exports: locate, load_records
-- needs: shard, head, sound
-- Finds the records of blocks: their heads in any bucket, and the ack vals beside them. What cannot be read is set aside.

-- Looks in the newest bucket first. Returns two arrays that run parallel to blocks: head or false, bucket.
local function locate(blocks)
  local found, bucket_of, missing = call('HMGET', keys[HEADS + NURSERY], unpack(blocks)), {}, {}
  for i = 1, #blocks do
    found[i] = sound(blocks[i], found[i], NURSERY)
    if found[i] then bucket_of[i] = NURSERY else missing[#missing + 1] = i end
  end
  for bucket = NURSERY + 1, EXPIRED do
    if #missing == 0 then break end
    local fields, still = {}, {}
    for i = 1, #missing do fields[i] = blocks[missing[i]] end
    local values = call('HMGET', keys[HEADS + bucket], unpack(fields))
    for i = 1, #missing do
      local position = missing[i]
      local head = sound(blocks[position], values[i], bucket)
      if head then
        found[position], bucket_of[position] = head, bucket
      else
        still[#still + 1] = position
      end
    end
    missing = still
  end
  return found, bucket_of
end

-- Reads heads, and the ack vals of the blocks that keep them apart. Returns records, false where found[i] is
-- or becomes so, because the ack vals are missing.
local function load_records(blocks, found, bucket_of)
  local records, apart, fields = {}, {}, {}
  for i = 1, #blocks do
    local record = found[i] and read_head(found[i])
    if record and not record.vals then
      local bucket = bucket_of[i]
      apart[bucket], fields[bucket] = apart[bucket] or {}, fields[bucket] or {}
      table.insert(apart[bucket], i)
      table.insert(fields[bucket], blocks[i])
    end
    records[i] = record
  end
  for bucket, list in pairs(apart) do
    local values = call('HMGET', keys[VALS + bucket], unpack(fields[bucket]))
    for i = 1, #list do
      local position = list[i]
      local record = records[position]
      if values[i] and (#values[i] == 8 * record.n or (#values[i] == 8 and has(record, INITIALISED))) then
        record.vals = values[i]
      else
        set_aside(blocks[position], bucket)
        records[position], found[position], bucket_of[position] = false, false, nil
      end
    end
  end
  return records
end

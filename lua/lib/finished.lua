-- Blocks that finished not long ago: one bit each, remembered for as many ticks as there are buckets. They keep a
-- repeated init from bringing a finished block back, and a late ack from opening an orphan.

-- Where a block's bit is: 1024 neighbours share one bitmap, the chunk. Returns chunk, byte position, mask.
local function chunk_of(block)
  local high, low = string.byte(block, 6, 7)
  local bit_at = (high % 16) * 64 + floor(low / 4)
  return sub(block, 1, 5) .. string.char(floor(high / 16)), floor(bit_at / 8) + 1, 2 ^ (bit_at % 8)
end

-- Which blocks without a record (found[i] is false) finished lately. Returns a set of positions.
local function recently_finished(blocks, found)
  local positions, chunks, result = {}, {}, {}
  for i = 1, #blocks do
    if not found[i] then
      positions[#positions + 1], chunks[#chunks + 1] = i, (chunk_of(blocks[i]))
    end
  end
  if #positions == 0 then return result end
  for tick = 1, buckets do
    local bitmaps = call('HMGET', keys[FINISHED + tick], unpack(chunks))
    for i = 1, #positions do
      if bitmaps[i] then
        local _, byte, mask = chunk_of(blocks[positions[i]])
        if band(string.byte(bitmaps[i], byte) or 0, mask) ~= 0 then result[positions[i]] = true end
      end
    end
  end
  return result
end

-- The newest bitmaps with the bits of more blocks set: chunk, bitmap, chunk, bitmap ..
local function finished_bitmaps(blocks)
  local bitmaps, list, chunks = {}, {}, {}
  for i = 1, #blocks do
    local chunk = chunk_of(blocks[i])
    if not bitmaps[chunk] then
      bitmaps[chunk] = ''
      chunks[#chunks + 1] = chunk
    end
  end
  if #chunks == 0 then return list end
  local stored = call('HMGET', keys[FINISHED + 1], unpack(chunks))
  for i = 1, #chunks do bitmaps[chunks[i]] = stored[i] or '' end
  for i = 1, #blocks do
    local chunk, byte, mask = chunk_of(blocks[i])
    local bitmap = bitmaps[chunk]
    if #bitmap < byte then bitmap = bitmap .. string.rep('\0', byte - #bitmap) end
    local patched = string.char(bor(string.byte(bitmap, byte), mask))
    bitmaps[chunk] = sub(bitmap, 1, byte - 1) .. patched .. sub(bitmap, byte + 1)
  end
  for chunk, bitmap in pairs(bitmaps) do
    list[#list + 1] = chunk
    list[#list + 1] = bitmap
  end
  return list
end

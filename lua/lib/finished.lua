-- exports: recently_finished, mark_finished, mark_run, finished_bitmaps
-- needs: bytes, shard
-- Blocks that finished recently: one bit each, remembered for as many ticks as there are buckets. They keep a repeated
-- init from reviving a finished block, and a late ack from opening an orphan.

local masks_of, marked_chunks = {}, {} -- chunk -> byte position -> bits to set; the chunks in a list

-- Where a block's bit is: 1024 neighbours share one bitmap, the chunk. Returns chunk, bit.
local function chunk_of(block)
  local high, low = string.byte(block, 6, 7)
  return sub(block, 1, 5) .. string.char(floor(high / 16)), (high % 16) * 64 + floor(low / 4)
end

-- Which blocks without a record (found[i] is false) finished recently. Returns a set of positions.
local function recently_finished(blocks, found)
  local positions, chunks, result = {}, {}, {}
  for i = 1, #blocks do
    if not found[i] then
      positions[#positions + 1], chunks[#chunks + 1] = i, (chunk_of(blocks[i]))
    end
  end
  if #positions == 0 then return result end
  for tick = 0, buckets - 1 do
    local bitmaps = call('HMGET', keys[FINISHED + tick], unpack(chunks))
    for i = 1, #positions do
      if bitmaps[i] then
        local _, bit_at = chunk_of(blocks[positions[i]])
        local byte = string.byte(bitmaps[i], floor(bit_at / 8) + 1) or 0
        if band(byte, 2 ^ (bit_at % 8)) ~= 0 then result[positions[i]] = true end
      end
    end
  end
  return result
end

local function mark(chunk, byte, bits)
  local masks = masks_of[chunk]
  if not masks then
    masks = {}
    masks_of[chunk], marked_chunks[#marked_chunks + 1] = masks, chunk
  end
  masks[byte] = bor(masks[byte] or 0, bits)
end

local function mark_finished(block)
  local chunk, bit_at = chunk_of(block)
  mark(chunk, floor(bit_at / 8) + 1, 2 ^ (bit_at % 8))
end

-- Marks the blocks from first to last of a list, each of which is the neighbour of the one before.
local function mark_run(blocks, first, last)
  while first <= last do
    local chunk, from = chunk_of(blocks[first])
    local to = math.min(from + last - first, 1023)
    for byte = floor(from / 8), floor(to / 8) do
      mark(chunk, byte + 1, 2 ^ math.min(8, to + 1 - 8 * byte) - 2 ^ math.max(0, from - 8 * byte))
    end
    first = first + to - from + 1
  end
end

-- The newest bitmaps with the bits of the blocks set that were marked: chunk, bitmap, chunk, bitmap ..
local function finished_bitmaps()
  local list = {}
  local stored = #marked_chunks > 0 and call('HMGET', keys[FINISHED], unpack(marked_chunks))
  for i = 1, #marked_chunks do
    local bitmap = stored[i] or ''
    for byte, bits in pairs(masks_of[marked_chunks[i]]) do
      if #bitmap < byte then bitmap = bitmap .. string.rep('\0', byte - #bitmap) end
      local patched = string.char(bor(string.byte(bitmap, byte), bits))
      bitmap = sub(bitmap, 1, byte - 1) .. patched .. sub(bitmap, byte + 1)
    end
    list[2 * i - 1], list[2 * i] = marked_chunks[i], bitmap
  end
  return list
end

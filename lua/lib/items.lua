-- exports: write_item
-- needs: bytes, ids, live
-- What a stream entry says of the roots of one block. The items of an entry stand back to back:
--
-- item := block(8) birth(5) kind(1) count(2) body ids_len(4) ids (lib/ids.lua)
-- kind ALL: the roots 0 .. count-1; LIST: count indexes of 2 bytes; BITMAP: count bits in ceil(count/8) bytes

local ALL, LIST, BITMAP = 0, 1, 2

local function bitmap_of(n, indexes)
  local bytes = {}
  for i = 1, math.ceil(n / 8) do bytes[i] = 0 end
  for i = 1, #indexes do
    local at = floor(indexes[i] / 8) + 1
    bytes[at] = bytes[at] + 2 ^ (indexes[i] % 8)
  end
  return string.char(unpack(bytes))
end

-- indexes: ascending, or nil for all live roots of the block.
local function write_item(block, record, indexes, packed_ids)
  local n, kind, body, amount = record.n, ALL, '', record.n
  if not indexes and record.bitmap then
    if packed_ids == '' then
      kind, body = BITMAP, record.bitmap
    else
      indexes = live_indexes(record)
    end
  end
  if indexes and #indexes < n then
    if packed_ids ~= '' then packed_ids = slice_ids(packed_ids, n, indexes) end
    if 16 * #indexes < n then
      local list = {}
      for i = 1, #indexes do list[i] = pack('>H', indexes[i]) end
      kind, body, amount = LIST, table.concat(list), #indexes
    else
      kind, body = BITMAP, bitmap_of(n, indexes)
    end
  end
  return pack('>c8c5BH', block, record.birth, kind, amount) .. body .. pack('>I4', #packed_ids) .. packed_ids
end

-- What a stream entry says of the roots of one block. The items of an entry stand back to back:
--
-- item := block(8) birth(5) kind(1) count(2) body ids_len(4) ids
-- kind ALL: the roots 0 .. count-1; LIST: count indexes of 2 bytes; BITMAP: count bits in ceil(count/8) bytes
-- ids  := type(1) layout(1) attempt(2), 0xFFFF: an attempt of 2 bytes for every root follows; then by layout
--         R: first(8), from which the reader counts; F: width(2) and ids of that width; V: end offset(4) of each, ids

local ALL, LIST, BITMAP = 0, 1, 2

-- The indexes of the live roots, ascending.
local function live_indexes(record)
  local indexes, bitmap = {}, record.bitmap
  for at = 1, bitmap and #bitmap or 0 do
    local byte = string.byte(bitmap, at)
    local index = 8 * (at - 1)
    while byte > 0 do
      if byte % 2 == 1 then indexes[#indexes + 1] = index end
      byte, index = floor(byte / 2), index + 1
    end
  end
  if not bitmap then
    for index = 0, record.n - 1 do indexes[index + 1] = index end
  end
  return indexes
end

-- The packed ids of some of the n roots of a block.
local function slice_ids(packed, n, indexes)
  local layout, attempt = unpack_bytes('>c1H', packed, 2)
  local pieces, at = { sub(packed, 1, 4) }, 5
  if attempt == 0xFFFF then
    for i = 1, #indexes do pieces[#pieces + 1] = sub(packed, at + 2 * indexes[i], at + 2 * indexes[i] + 1) end
    at = at + 2 * n
  end
  if layout == 'R' then
    pieces[#pieces + 1] = sub(packed, at)
  elseif layout == 'F' then
    local width = unpack_bytes('>H', packed, at)
    pieces[#pieces + 1] = sub(packed, at, at + 1)
    for i = 1, #indexes do
      local from = at + 2 + width * indexes[i]
      pieces[#pieces + 1] = sub(packed, from, from + width - 1)
    end
  else
    local blob, texts, size = at + 4 * n, {}, 0
    for i = 1, #indexes do
      local index = indexes[i]
      local from = index == 0 and 0 or unpack_bytes('>I4', packed, at + 4 * (index - 1))
      local to = unpack_bytes('>I4', packed, at + 4 * index)
      size = size + to - from
      pieces[#pieces + 1], texts[i] = pack('>I4', size), sub(packed, blob + from, blob + to - 1)
    end
    pieces[#pieces + 1] = table.concat(texts)
  end
  return table.concat(pieces)
end

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
local function item(block, record, indexes, packed_ids)
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

-- exports: is_live, live_among, live_indexes, retire
-- needs: bytes
-- Which roots of a record are live: all of them, until the first of its final events gives it a bitmap.

local function is_live(record, index)
  if index >= record.n then return false end
  if not record.bitmap then return true end
  return band(string.byte(record.bitmap, floor(index / 8) + 1), 2 ^ (index % 8)) ~= 0
end

-- Those of some roots that are live, in the same order.
local function live_among(record, indexes)
  local live = {}
  for i = 1, #indexes do
    if is_live(record, indexes[i]) then live[#live + 1] = indexes[i] end
  end
  return live
end

-- The indexes of all live roots, ascending.
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

-- Makes live roots live no longer: those listed, or all of them for nil.
local function retire(record, indexes)
  if not indexes or #indexes == record.live then
    record.live = 0
    return
  end
  local n = record.n
  local bitmap = record.bitmap or string.rep('\255', floor(n / 8)) .. (n % 8 > 0 and string.char(2 ^ (n % 8) - 1) or '')
  local bytes = { string.byte(bitmap, 1, -1) }
  for i = 1, #indexes do
    local at = floor(indexes[i] / 8) + 1
    bytes[at] = bytes[at] - 2 ^ (indexes[i] % 8)
  end
  record.live = record.live - #indexes
  record.bitmap = string.char(unpack(bytes))
end

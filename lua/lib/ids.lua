-- exports: slice_ids, replays_in, are_ids
-- needs: bytes
-- The packed message ids and attempts of a block, or of some of its roots.
--
-- ids := type(1) layout(1) attempt(2), 0xFFFF: an attempt of 2 bytes for every root follows; then by layout
--        R: first(8), from which the reader counts; F: width(2) and ids of that width; V: end offset(4) of each, ids
-- type: s text, b bytes, i integers, n none

-- How many of the n roots of a block are replays: their attempt is not the first.
local function replays_in(packed, n)
  local attempt, amount = unpack_bytes('>H', packed, 3), 0
  if attempt ~= 0xFFFF then return attempt > 1 and n or 0 end
  for i = 0, n - 1 do
    if unpack_bytes('>H', packed, 5 + 2 * i) > 1 then amount = amount + 1 end
  end
  return amount
end

-- Whether they are as long as the ids of n roots have to be.
local function are_ids(packed, n)
  if #packed < 4 then return false end
  local layout, attempt = unpack_bytes('>c1H', packed, 2)
  local at = attempt == 0xFFFF and 4 + 2 * n or 4
  if layout == 'R' then return #packed == at + 8 end
  if layout == 'F' then return #packed >= at + 2 and #packed == at + 2 + n * unpack_bytes('>H', packed, at + 1) end
  local blob = at + 4 * n
  return layout == 'V' and n > 0 and #packed >= blob and #packed == blob + unpack_bytes('>I4', packed, blob - 3)
end

-- The ids of some of the n roots of a block.
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

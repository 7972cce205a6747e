-- exports: read_roots, read_pairs
-- needs: bytes
-- Roots as a batch names them, block by block.

-- Reads 'block(8) count(2) index(2) ..', repeated. Returns blocks and, parallel to them, lists of indexes.
local function read_roots(packed)
  local blocks, indexes, at = {}, {}, 1
  while at <= #packed do
    local block, amount = unpack_bytes('>c8H', packed, at)
    local list = {}
    for i = 1, amount do list[i] = unpack_bytes('>H', packed, at + 8 + 2 * i) end
    blocks[#blocks + 1], indexes[#indexes + 1] = block, list
    at = at + 10 + 2 * amount
  end
  return blocks, indexes
end

-- Reads 'block(8) count(2) index(2) ack_val(8) ..', repeated. Returns blocks and, parallel to them, counts and tables
-- of index -> ack val.
local function read_pairs(packed)
  local blocks, amounts, words, at = {}, {}, {}, 1
  while at <= #packed do
    local position, by_index = #blocks + 1, {}
    local block, amount = unpack_bytes('>c8H', packed, at)
    for i = 0, amount - 1 do
      local index, word = unpack_bytes('>Hc8', packed, at + 10 + 10 * i)
      by_index[index] = word
    end
    blocks[position], amounts[position], words[position] = block, amount, by_index
    at = at + 10 + 10 * amount
  end
  return blocks, amounts, words
end

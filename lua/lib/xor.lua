-- exports: ZERO, xor, xor_word, replace_words, zero_indexes, count_stray
-- needs: bytes, shard, scratch, live
-- XOR over vectors of 8-byte ack vals. Long vectors go through two scratch keys and BITOP, at C speed.

local ZERO = '\0\0\0\0\0\0\0\0'
local zeros_of_size = {}

local function xor(left, right)
  if left == '' then return right end
  use_scratch()
  call('MSET', scratch_a, left, scratch_b, right)
  call('BITOP', 'XOR', scratch_a, scratch_a, scratch_b)
  return call('GET', scratch_a)
end

local function xor_word(left, right)
  local a, b = unpack_bytes('>I4I4', left)
  local c, d = unpack_bytes('>I4I4', right)
  return pack('>i4i4', bxor(a, c), bxor(b, d))
end

-- A vector with some of its words replaced, or, past its end, added: words[index] = word.
local function replace_words(vector, words)
  if #vector == 8 then return words[0] or vector end -- a lone root
  use_scratch()
  call('SET', scratch_a, vector)
  for index, word in pairs(words) do call('SETRANGE', scratch_a, 8 * index, word) end
  return call('GET', scratch_a)
end

-- Indexes of the live roots whose word is zero, ascending; nil where that is every live root.
local function zero_indexes(record, vector)
  local zeros = zeros_of_size[#vector]
  if not zeros then
    zeros = string.rep(ZERO, #vector / 8)
    zeros_of_size[#vector] = zeros
  end
  if vector == zeros then return nil end
  local indexes, at = {}, 1
  while true do
    at = find(vector, ZERO, at, true)
    if not at then return indexes end
    if at % 8 == 1 then
      local index = (at - 1) / 8
      if is_live(record, index) then indexes[#indexes + 1] = index end
      at = at + 8
    else
      at = at + 1
    end
  end
end

-- How many words from the first index on are not zero and belong to no live root.
local function count_stray(record, vector, from)
  local stray, bitmap = 0, record.bitmap
  for at = floor(from / 8) + 1, bitmap and math.min(#bitmap, math.ceil(#vector / 64)) or 0 do
    local byte = string.byte(bitmap, at)
    if byte < 255 then
      for index = 8 * (at - 1), math.min(8 * at, record.n, #vector / 8) - 1 do
        if byte % 2 == 0 and index >= from and sub(vector, 8 * index + 1, 8 * index + 8) ~= ZERO then
          stray = stray + 1
        end
        byte = floor(byte / 2)
      end
    end
  end
  for index = math.max(from, record.n), #vector / 8 - 1 do
    if sub(vector, 8 * index + 1, 8 * index + 8) ~= ZERO then stray = stray + 1 end
  end
  return stray
end

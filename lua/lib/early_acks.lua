-- exports: keep_words, keep_vector, adopt_words, early_word
-- needs: bytes, early, xor
-- Early acks: ack vals that come before the init of their block, and wait for it in its record: few as words, many as a
-- vector, whichever is shorter.
--
-- words := index(2) ack_val(8); repeated

local function read_words(packed)
  local words = {}
  for at = 1, #packed, 10 do
    local index, word = unpack_bytes('>Hc8', packed, at)
    words[index] = word
  end
  return words
end

-- Puts words into the vector, as far as it goes or is the shorter way to keep them; the others stay words.
local function file(record, words)
  local inside, outside, pieces, top = {}, {}, {}, -1
  for index, word in pairs(words) do
    if index < record.n then
      inside[index] = xor_word(sub(record.vals, 8 * index + 1, 8 * index + 8), word)
    else
      outside[index], pieces[#pieces + 1], top = word, pack('>Hc8', index, word), math.max(top, index)
    end
  end
  if next(inside) then record.vals = replace_words(record.vals, inside) end
  record.words = table.concat(pieces)
  if top >= 0 and 8 * (top + 1) <= #record.vals + #record.words then
    record.vals, record.words = xor(record.vals, replace_words('', outside)), ''
  end
  record.n = #record.vals / 8
end

-- Keeps words[index] = ack val. Returns how many belong to no possible root.
local function keep_words(record, words)
  local kept, strays = read_words(record.words), 0
  for index, word in pairs(words) do
    if possible(index) then
      kept[index] = kept[index] and xor_word(kept[index], word) or word
    else
      strays = strays + 1
    end
  end
  file(record, kept)
  return strays
end

-- Keeps a vector. Returns how many of its ack vals belong to no possible root.
local function keep_vector(record, vector)
  local strays = 0
  while not possible(#vector / 8 - 1) do
    if sub(vector, -8) ~= ZERO then strays = strays + 1 end
    vector = sub(vector, 1, -9)
  end
  record.vals = xor(record.vals, vector)
  record.n = #record.vals / 8
  file(record, read_words(record.words))
  return strays
end

-- XORs the words of an orphan into the record that takes its place. Returns how many belong to none of its roots.
local function adopt_words(record, packed)
  local changed, late = {}, 0
  for index, word in pairs(read_words(packed)) do
    if index < record.n then
      changed[index] = xor_word(sub(record.vals, 8 * index + 1, 8 * index + 8), word)
    elseif word ~= ZERO then
      late = late + 1
    end
  end
  if next(changed) then record.vals = replace_words(record.vals, changed) end
  return late
end

-- The word that is kept for a root.
local function early_word(record, index) return read_words(record.words)[index] or ZERO end

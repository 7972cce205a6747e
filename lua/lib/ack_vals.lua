-- exports: apply_pairs, apply_vector
-- needs: bytes, head, live, xor
-- XORs ack vals into an initialised record. Both functions return the roots that are zero now (nil: all live ones), the
-- live roots that were touched, and how many ack vals came too late, for roots that are not live.

local function apply_pairs(record, by_index)
  local changed, zeros, touched, late = {}, {}, {}, 0
  record.vals = each_val(record.vals, record.n)
  for index, word in pairs(by_index) do
    if is_live(record, index) then
      local new = xor_word(sub(record.vals, 8 * index + 1, 8 * index + 8), word)
      changed[index] = new
      touched[#touched + 1] = index
      if new == ZERO then zeros[#zeros + 1] = index end
    else
      late = late + 1
    end
  end
  table.sort(zeros)
  if #zeros < record.live then record.vals = replace_words(record.vals, changed) end
  return zeros, touched, late
end

-- The vector has an ack val for each of the first n roots, or a single one that they have in common. With find_touched
-- false the touched roots are not looked for, which costs more than the rest, and none is returned.
local function apply_vector(record, vector, n, find_touched)
  local touched, late = {}, 0
  if #record.vals == 8 and #vector == 8 and n == record.n and not record.bitmap and not find_touched then
    record.vals = xor_word(record.vals, vector)
    return zero_indexes(record, record.vals), touched, late
  end
  record.vals, vector = each_val(record.vals, record.n), each_val(vector, n)
  if record.bitmap or #vector > 8 * record.n then
    late = count_stray(record, vector, record.bitmap and 0 or record.n)
    vector = sub(vector, 1, 8 * record.n)
  end
  local live = find_touched and live_indexes(record) or touched
  for i = 1, #live do
    local word = sub(vector, 8 * live[i] + 1, 8 * live[i] + 8)
    if word ~= '' and word ~= ZERO then touched[#touched + 1] = live[i] end
  end
  record.vals = xor(record.vals, vector)
  return zero_indexes(record, record.vals), touched, late
end

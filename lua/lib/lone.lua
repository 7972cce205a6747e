-- exports: is_lone, fail_lone
-- needs: bytes, shard, head, sound, finished, changes
-- Lone roots that expire. A bucket may hold millions, so those with nothing but ack val and tokens in their head are
-- failed without taking a record apart for each, and neighbours that were born together are failed together.

local KIND_AND_COUNT = pack('>BH', 0, 1) -- of an item (lib/items.lua): all of one root

-- Whether it is the head of a lone root that was never extended.
local function is_lone(head)
  local flags, high, low = string.byte(head, 1, 3)
  local is_plain = low == 1 and high == 0 and flags % QUIET == INITIALISED and flags < HAS_FAILS
  return is_plain and #head >= 16 and (#head - 16) % 12 == 0
end

local function are_neighbours(first, last, steps)
  local from, to = unpack_bytes('>I6', first, 3), unpack_bytes('>I6', last, 3)
  return sub(first, 1, 2) == sub(last, 1, 2) and to - from == 1024 * steps
end

-- The items of blocks whose heads begin alike; packed: their names back to back.
local function lone_items(blocks, first, last, packed, birth, packed_ids)
  if not packed_ids then
    local rest = birth .. KIND_AND_COUNT .. pack('>I4', 0)
    return (string.gsub(packed, '........', '%0' .. string.gsub(rest, '%%', '%%%%')))
  end
  local items = {}
  for i = first, last do
    local ids = sound_ids(blocks[i], packed_ids[i], 1, EXPIRED)
    items[#items + 1] = blocks[i] .. birth .. KIND_AND_COUNT .. pack('>I4', #ids) .. ids
  end
  delete_fields(IDS + EXPIRED, blocks, first, last)
  return table.concat(items)
end

-- Fails those of the expired blocks that are lone roots. Returns how many, and the positions of the others.
local function fail_lone(blocks, heads, ids, cause)
  local packed, total, others, i = table.concat(blocks), 0, {}, 1
  while i <= #blocks do
    local first, head = i, heads[i]
    i = i + 1
    if head and is_lone(head) then
      local start, size, spout = sub(head, 1, 8), #head, spout_of(blocks[first])
      local is_over = blocks[#blocks] and spout_of(blocks[#blocks]) ~= spout
      head = heads[i]
      while head and #head == size and find(head, start, 1, true) == 1 do -- cuts no string out of each
        if is_over and spout_of(blocks[i]) ~= spout then break end
        i = i + 1
        head = heads[i]
      end
      local last, with_ids = i - 1, string.byte(start) % (2 * HAS_IDS) >= HAS_IDS
      local names = sub(packed, 8 * first - 7, 8 * last)
      local items = lone_items(blocks, first, last, names, sub(start, 4, 8), with_ids and ids)
      add_item(stream_of(spout) + 1, cause, items)
      count(cause.reason .. ':' .. spout, last - first + 1)
      total = total + last - first + 1
      local in_one_run = are_neighbours(blocks[first], blocks[last], last - first)
      if in_one_run then mark_run(blocks, first, last) end
      for at = in_one_run and last + 1 or first, last do mark_finished(blocks[at]) end
      delete_fields(HEADS + EXPIRED, blocks, first, last)
    elseif head then
      others[#others + 1] = first
    end
  end
  return total, others
end

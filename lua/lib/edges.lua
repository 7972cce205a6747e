-- exports: acked_before, sift_edges
-- needs: bytes, head, early, live, xor
-- Edges that are acked one by one. A record remembers them among its tokens, 12 bytes each as a token has: edge(8)
-- index(4) of its root. So they are known for as long as a root of the block can be pending.

local FEW = 16 * 12

local function find_in(list, entry)
  local at = find(list, entry, 1, true)
  while at and at % 12 ~= 1 do at = find(list, entry, at + 1, true) end
  return at
end

-- Which of some edges, packed as above and none of them twice, are among the tokens. Returns a set of positions.
local function acked_before(tokens, edges)
  local known = {}
  if #tokens <= FEW then -- as a rule: few calls bring all edges of a block
    for at = 1, #tokens, 12 do
      local found = find_in(edges, sub(tokens, at, at + 11))
      if found then known[found] = true end
    end
  elseif #edges <= FEW then
    for at = 1, #edges, 12 do
      if find_in(tokens, sub(edges, at, at + 11)) then known[at] = true end
    end
  else
    local all = {}
    for at = 1, #tokens, 12 do all[sub(tokens, at, at + 11)] = true end
    for at = 1, #edges, 12 do
      if all[sub(edges, at, at + 11)] then known[at] = true end
    end
  end
  return known
end

-- Leaves out what is known, or belongs to no root that is live or may come. Returns the rest as words[index] = ack val,
-- XORed for each root, and as it is remembered; and how many belong to no such root.
local function sift_edges(record, known, edges, ack_vals)
  local words, new, strays, is_orphan = {}, {}, 0, not has(record, INITIALISED)
  for at = 1, #edges, 12 do
    local index, before = unpack_bytes('>I4', edges, at + 8), (at - 1) / 12 * 8
    if not (is_orphan and possible(index) or is_live(record, index)) then
      strays = strays + 1
    elseif not known[at] then
      local word = ack_vals == '' and sub(edges, at, at + 7) or sub(ack_vals, before + 1, before + 8)
      words[index] = words[index] and xor_word(words[index], word) or word
      new[#new + 1] = sub(edges, at, at + 11)
    end
  end
  return words, new, strays
end

-- needs: bytes, shard, lookup, head, live, edges
-- Says which deliveries are still to be worked on, by their edges. Reads only.
--
-- KEYS     as in lib/shard.lua
-- ARGV[4]  block  8 bytes
-- ARGV[5]  edges  edge(8) index(4) of each delivery, none of them twice; 4 and 5 repeated
-- Returns  for each block a byte for each delivery: 0 open, 1 acked before, 2 its root is over, or nothing is known of it
-- Emits    nothing

local OPEN, ACKED, OVER = '\0', '\1', '\2'
local blocks = {}
for i = 4, #args, 2 do blocks[#blocks + 1] = args[i] end
local found = locate(blocks)
local replies = {}

for i = 1, #blocks do
  local edges = args[2 * i + 3]
  local record = found[i] and read_head(found[i])
  if not record then
    replies[i] = string.rep(OVER, #edges / 12)
  else
    local known, states = acked_before(record.tokens, edges), {}
    for at = 1, #edges, 12 do
      local is_over = has(record, INITIALISED) and not is_live(record, (unpack_bytes('>I4', edges, at + 8)))
      states[#states + 1] = is_over and OVER or known[at] and ACKED or OPEN
    end
    replies[i] = table.concat(states)
  end
end
return replies

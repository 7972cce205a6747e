-- needs: bytes, shard, sound, lone, changes
-- Reads one page of the expired bucket, for drain.lua. Sets aside what cannot be read.
--
-- KEYS     as in lib/shard.lua
-- ARGV[4]  cursor  '0' to begin
-- ARGV[5]  count   of blocks, about
-- Returns  cursor ('0': the bucket has been read), blocks of 8 bytes, their costs of 2 bytes, how many were set aside
-- Emits    nothing

call('DEL', scratch_a) -- a first write that is allowed when memory is full, so that all others are too
local cursor, amount = args[4], args[5]
local A_LONE_ROOT, A_BLOCK, BYTES_OF_A_ROOT = '\0\2', 20, 16

local scanned = call('HSCAN', keys[HEADS + EXPIRED], cursor, 'COUNT', amount)
local fields, blocks, costs, found, aside = scanned[2], {}, {}, 0, 0 -- counted: Lua searches for the length of a list
for i = 1, #fields, 2 do
  local block, head = fields[i], fields[i + 1]
  if #block ~= 8 then
    set_aside(block, EXPIRED)
    aside = aside + 1
  elseif is_lone(head) then
    found = found + 1
    blocks[found], costs[found] = block, A_LONE_ROOT
  elseif sound(block, head, EXPIRED) then
    local flags, n = unpack_bytes('>BH', head)
    local roots = flags % 2 == 1 and n or 0 -- of an orphan nothing is read
    found = found + 1
    blocks[found] = block
    costs[found] = pack('>H', math.min(0xFFFF, math.max(A_BLOCK, roots, #head / BYTES_OF_A_ROOT)))
  else
    aside = aside + 1
  end
end
flush()
return { scanned[1], table.concat(blocks), table.concat(costs), aside }

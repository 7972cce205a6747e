-- exports: sound, set_aside
-- needs: bytes, shard, clock, head, changes
-- Records that cannot be read, because another program wrote to their keys. They are set aside whole, into the
-- quarantine, and the call goes on as if they were not there.
--
-- quarantine := 'heads ' and the block in hex -> at_ms(6), then size(4) and bytes of the head, the ack vals and the ids

-- Whether every part that a head announces is there, and nothing else.
local function is_head(head)
  if #head < 8 then return false end
  local flags, high, low = string.byte(head, 1, 3)
  local n, at = 256 * high + low, 9
  if n > 1024 then return false end -- no block has so many roots
  if n <= INLINE then at = at + 8 * n end
  if flags % QUIET > INITIALISED or flags >= HAS_FAILS then -- most have none of these parts
    if band(flags, HAS_BITMAP) ~= 0 then
      if at + 1 > #head or unpack_bytes('>H', head, at) > n then return false end
      at = at + 2 + math.ceil(n / 8)
    end
    if band(flags, HAS_TICKS) ~= 0 then at = at + ticks_size(head, at, n) end
    if band(flags, HAS_FAILS) ~= 0 then
      if at + 3 > #head then return false end
      at = at + 4 + unpack_bytes('>I4', head, at)
    end
    if band(flags, HAS_WORDS) ~= 0 then
      if at + 1 > #head then return false end
      at = at + 2 + 10 * unpack_bytes('>H', head, at)
    end
  end
  return at <= #head + 1 and (#head + 1 - at) % 12 == 0
end

local function set_aside(block, bucket)
  local name, parts = { 'heads ' }, { pack('>I6', now_ms()) }
  for at = 1, #block do name[at + 1] = string.format('%02x', string.byte(block, at)) end
  for hash = HEADS + bucket, IDS + bucket, VALS - HEADS do
    local part = call('HGET', keys[hash], block) or ''
    parts[#parts + 1] = pack('>I4', #part) .. part
    delete_field(hash, block)
  end
  put_field(QUARANTINE, table.concat(name), table.concat(parts))
  count('quarantined', 1)
end

-- The head of a block in a bucket if it can be read; else false, and the block is set aside.
local function sound(block, head, bucket)
  if not head or is_head(head) then return head end
  set_aside(block, bucket)
  return false
end

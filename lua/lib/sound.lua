-- exports: sound, sound_ids, set_aside
-- needs: bytes, shard, clock, head, ids, changes
-- Records that cannot be read, because another program wrote to their keys. They are set aside whole, into the
-- quarantine, and the call goes on as if they were not there.
--
-- quarantine := 'heads ' and the block in hex -> at_ms(6), then size(4) and bytes of the head, the ack vals and the ids;
--               'ids ' and the block in hex -> the same of its ids alone

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
      if n % 8 > 0 and (string.byte(head, at - 1) or 0) >= 2 ^ (n % 8) then return false end
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

-- Moves what a block has in some hashes, each so far from the next as heads from ack vals and these from ids.
local function move_aside(name, block, first, last)
  local words, parts = { name }, { pack('>I6', now_ms()) }
  for at = 1, #block do words[at + 1] = string.format('%02x', string.byte(block, at)) end
  for hash = first, last, VALS - HEADS do
    local part = call('HGET', keys[hash], block) or ''
    parts[#parts + 1] = pack('>I4', #part) .. part
    delete_field(hash, block)
  end
  put_field(QUARANTINE, table.concat(words), table.concat(parts))
  count('quarantined', 1)
end

local function set_aside(block, bucket) move_aside('heads ', block, HEADS + bucket, IDS + bucket) end

-- The packed ids of the n roots of a block in a bucket; empty if it has none, or if they cannot be read: then they alone
-- are set aside, since its roots can come to their final events without them.
local function sound_ids(block, packed_ids, n, bucket)
  if not packed_ids or are_ids(packed_ids, n) then return packed_ids or '' end
  move_aside('ids ', block, IDS + bucket, IDS + bucket)
  return ''
end

-- The head of a block in a bucket if it can be read; else false, and the block is set aside.
local function sound(block, head, bucket)
  if not head or is_head(head) then return head end
  set_aside(block, bucket)
  return false
end

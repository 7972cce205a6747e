-- The record of one block: a head, and past INLINE roots the ack vals beside it in the vals hash.
--
-- head := flags(1) n(2) birth(5): ms, the low 40 bits
--         | n ack vals of 8 bytes, only if n <= INLINE
--         | count(2) of live roots and their bitmap, ceil(n/8) bytes, only with HAS_BITMAP (else all n are live)
--         | tick of the last extend of every root, 4 bytes each, only with HAS_TICKS
--         | size(4) of early fails, only with HAS_FAILS: fatal(1) component_len(1) error_len(2) count(2) component error
--           index(2) ..; repeated
--         | tokens, 12 bytes each: name(8) sequence(4)
-- An orphan (not INITIALISED) holds what arrived before its init: ack vals, early fails, tokens.

local INITIALISED, HAS_BITMAP, HAS_TICKS, QUIET, HAS_IDS, ECHO, HAS_FAILS = 1, 2, 4, 8, 16, 32, 64
local INLINE = 8
local ZERO = '\0\0\0\0\0\0\0\0'
local band, bor, bxor = bit.band, bit.bor, bit.bxor

local function read_head(head)
  local flags, n, birth, at = unpack_bytes('>BHc5', head)
  local record = { flags = flags, n = n, live = n, birth = birth, fails = '', tokens = '' }
  if n <= INLINE then
    record.vals, at = sub(head, at, at + 8 * n - 1), at + 8 * n
  end
  if band(flags, HAS_BITMAP) ~= 0 then
    local size = math.ceil(n / 8)
    record.live = unpack_bytes('>H', head, at)
    record.bitmap, at = sub(head, at + 2, at + 1 + size), at + 2 + size
  end
  if band(flags, HAS_TICKS) ~= 0 then
    record.ticks, at = sub(head, at, at + 4 * n - 1), at + 4 * n
  end
  if band(flags, HAS_FAILS) ~= 0 then
    local size = unpack_bytes('>I4', head, at)
    record.fails, at = sub(head, at + 4, at + 3 + size), at + 4 + size
  end
  if at <= #head then record.tokens = sub(head, at) end
  return record
end

local function new_record(flags, vals)
  local n = #vals / 8
  return { flags = flags, n = n, live = n, birth = pack('>I5', now_ms() % 2 ^ 40), vals = vals, fails = '', tokens = '' }
end

local function write_head(record)
  local flags = band(record.flags, INITIALISED + QUIET + HAS_IDS + ECHO)
  local inline = record.n <= INLINE and record.vals or ''
  local live, ticks, fails = '', record.ticks or '', ''
  if record.bitmap then
    flags, live = flags + HAS_BITMAP, pack('>H', record.live) .. record.bitmap
  end
  if record.ticks then flags = flags + HAS_TICKS end
  if record.fails ~= '' then
    flags, fails = flags + HAS_FAILS, pack('>I4', #record.fails) .. record.fails
  end
  return pack('>BHc5', flags, record.n, record.birth) .. inline .. live .. ticks .. fails .. record.tokens
end

-- Reads heads, and the ack vals of the blocks that keep them apart. Returns records, false where found[i] is.
local function load_records(blocks, found, bucket_of)
  local records, apart, fields = {}, {}, {}
  for i = 1, #blocks do
    local record = found[i] and read_head(found[i])
    if record and not record.vals then
      local bucket = bucket_of[i]
      apart[bucket], fields[bucket] = apart[bucket] or {}, fields[bucket] or {}
      table.insert(apart[bucket], record)
      table.insert(fields[bucket], blocks[i])
    end
    records[i] = record
  end
  for bucket, list in pairs(apart) do
    local values = call('HMGET', keys[VALS + bucket], unpack(fields[bucket]))
    for i = 1, #list do list[i].vals = values[i] end
  end
  return records
end

local function has(record, flag)
  return band(record.flags, flag) ~= 0
end

local function is_live(record, index)
  if index >= record.n then return false end
  if not record.bitmap then return true end
  return band(string.byte(record.bitmap, floor(index / 8) + 1), 2 ^ (index % 8)) ~= 0
end

-- Takes live roots out of the live ones: those listed, or with nil all.
local function retire(record, indexes)
  if not indexes or #indexes == record.live then
    record.live = 0
    return
  end
  local n = record.n
  local bitmap = record.bitmap or string.rep('\255', floor(n / 8)) .. (n % 8 > 0 and string.char(2 ^ (n % 8) - 1) or '')
  local bytes = { string.byte(bitmap, 1, -1) }
  for i = 1, #indexes do
    local at = floor(indexes[i] / 8) + 1
    bytes[at] = bytes[at] - 2 ^ (indexes[i] % 8)
  end
  record.live = record.live - #indexes
  record.bitmap = string.char(unpack(bytes))
end

-- Starts the clock of roots again: like a root born at this tick they live until the nursery of this tick expires.
local function restart_clock(record, indexes, tick)
  local stamp = pack('>I4', tick)
  if #indexes == record.live then -- all that matter
    record.ticks = string.rep(stamp, record.n)
    return
  end
  local ticks = record.ticks or string.rep('\0\0\0\0', record.n)
  if #indexes * 8 < record.n then
    -- Few: cutting the string at each is cheaper than taking it apart, and leaves less to Lua's collector.
    for i = 1, #indexes do
      ticks = sub(ticks, 1, 4 * indexes[i]) .. stamp .. sub(ticks, 4 * indexes[i] + 5)
    end
    record.ticks = ticks
    return
  end
  local pieces = {}
  for index = 0, record.n - 1 do pieces[index + 1] = sub(ticks, 4 * index + 1, 4 * index + 4) end
  for i = 1, #indexes do pieces[indexes[i] + 1] = stamp end
  record.ticks = table.concat(pieces)
end

-- A batch is known by its name and sequence. Of one name only the highest sequence is kept, because its sender waits
-- for the answer before it sends the next. Returns true for a second delivery, else notes the token.
local function seen(record, token)
  local name, at = sub(token, 1, 8), 1
  while true do
    at = find(record.tokens, name, at, true)
    if not at then
      record.tokens = record.tokens .. token
      return false
    elseif at % 12 == 1 then
      if unpack_bytes('>I4', record.tokens, at + 8) >= unpack_bytes('>I4', token, 9) then return true end
      record.tokens = sub(record.tokens, 1, at - 1) .. token .. sub(record.tokens, at + 12)
      return false
    end
    at = at + 1
  end
end

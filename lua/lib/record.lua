-- The record of one block: a head, and past INLINE roots the ack vals beside it in the vals hash.
--
-- head := flags(1) n(2) live(2) birth_ms(6) fails_len(2)
--         | n ack vals of 8 bytes, only if n <= INLINE
--         | bitmap of live roots, ceil(n/8) bytes, only with HAS_BITMAP (else all n are live)
--         | tick of the last extend of every root, 4 bytes each, only with HAS_TICKS
--         | early fails, fails_len bytes: index(2) fatal(1) component_len(1) error_len(2) component error
--         | tokens, 12 bytes each: name(8) sequence(4)
-- An orphan (not INITIALISED) holds what arrived before its init: ack vals, early fails, tokens; its live is 1.

local INITIALISED, HAS_BITMAP, HAS_TICKS, QUIET, HAS_IDS, ECHO = 1, 2, 4, 8, 16, 32
local INLINE = 8
local ZERO = '\0\0\0\0\0\0\0\0'
local band, bor, bxor = bit.band, bit.bor, bit.bxor

local function read_head(head)
  local flags, n, live, birth_ms, fails_len, at = unpack_bytes('>BHHI6H', head)
  local record = { flags = flags, n = n, live = live, birth_ms = birth_ms, fails = '', tokens = '' }
  if n <= INLINE then
    record.vals, at = string.sub(head, at, at + 8 * n - 1), at + 8 * n
  end
  if band(flags, HAS_BITMAP) ~= 0 then
    local size = math.ceil(n / 8)
    record.bitmap, at = string.sub(head, at, at + size - 1), at + size
  end
  if band(flags, HAS_TICKS) ~= 0 then
    record.ticks, at = string.sub(head, at, at + 4 * n - 1), at + 4 * n
  end
  if fails_len > 0 then
    record.fails, at = string.sub(head, at, at + fails_len - 1), at + fails_len
  end
  if at <= #head then record.tokens = string.sub(head, at) end
  return record
end

local function new_orphan()
  return { flags = 0, n = 0, live = 1, birth_ms = now_ms, vals = '', fails = '', tokens = '' }
end

local function write_head(record)
  local flags = band(record.flags, INITIALISED + QUIET + HAS_IDS + ECHO)
  if record.bitmap then flags = flags + HAS_BITMAP end
  if record.ticks then flags = flags + HAS_TICKS end
  local fixed = pack('>BHHI6H', flags, record.n, record.live, record.birth_ms, #record.fails)
  local inline = record.n <= INLINE and record.vals or ''
  return fixed .. inline .. (record.bitmap or '') .. (record.ticks or '') .. record.fails .. record.tokens
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
    local values = call('HMGET', vals[bucket], unpack(fields[bucket]))
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
  return band(string.byte(record.bitmap, math.floor(index / 8) + 1), 2 ^ (index % 8)) ~= 0
end

local function bitmap_of_all(n)
  local rest = n % 8 == 0 and '' or string.char(2 ^ (n % 8) - 1)
  return string.rep('\255', math.floor(n / 8)) .. rest
end

-- Takes live roots out of the live ones.
local function retire(record, indexes)
  local bytes = { string.byte(record.bitmap or bitmap_of_all(record.n), 1, -1) }
  for i = 1, #indexes do
    local at = math.floor(indexes[i] / 8) + 1
    bytes[at] = bytes[at] - 2 ^ (indexes[i] % 8)
  end
  record.live = record.live - #indexes
  record.bitmap = string.char(unpack(bytes))
end

-- Notes for roots that their clock starts again at this tick. Like a root that was born now they are to live until
-- the nursery of this tick expires.
local function restart_clock(record, indexes, tick)
  local ticks, stamp = {}, pack('>I4', tick)
  local old = record.ticks or string.rep('\0\0\0\0', record.n)
  for index = 0, record.n - 1 do ticks[index + 1] = string.sub(old, 4 * index + 1, 4 * index + 4) end
  for i = 1, #indexes do ticks[indexes[i] + 1] = stamp end
  record.ticks = table.concat(ticks)
end

-- A batch is known by its name and sequence. Of one name only the highest sequence is kept, because its sender waits
-- for the answer before it sends the next. Returns true for a second delivery, else notes the token.
local function seen(record, token)
  local name, at = string.sub(token, 1, 8), 1
  while true do
    at = string.find(record.tokens, name, at, true)
    if not at then
      record.tokens = record.tokens .. token
      return false
    elseif at % 12 == 1 then
      if unpack_bytes('>I4', record.tokens, at + 8) >= unpack_bytes('>I4', token, 9) then return true end
      record.tokens = string.sub(record.tokens, 1, at - 1) .. token .. string.sub(record.tokens, at + 12)
      return false
    end
    at = at + 1
  end
end

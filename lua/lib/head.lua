-- exports: INITIALISED, HAS_BITMAP, HAS_TICKS, QUIET, HAS_IDS, ECHO, HAS_FAILS, HAS_WORDS, INLINE, RECORD_BYTES
-- exports: has, read_head, write_head, new_record, each_val
-- needs: bytes, clock
-- The record of one block: a head, and past INLINE roots the ack vals beside it in the vals hash: one for each root, or
-- a single one that all have in common.
--
-- head := flags(1) n(2) birth(5): ms, the low 40 bits
--         | n ack vals of 8 bytes, only if n <= INLINE
--         | count(2) of live roots and their bitmap, ceil(n/8) bytes, only with HAS_BITMAP (else all n are live)
--         | tick of the last extend (lib/clock.lua): 4 bytes for all roots or 4 for each, only with HAS_TICKS
--         | size(4) of early fails (lib/early.lua) and these, only with HAS_FAILS
--         | count(2) of early words (lib/early_acks.lua) and these, 10 bytes each, only with HAS_WORDS
--         | tokens (lib/tokens.lua), 12 bytes each
-- An orphan (not INITIALISED) holds what arrived before its init: ack vals, early fails, tokens.

local INITIALISED, HAS_BITMAP, HAS_TICKS, QUIET, HAS_IDS, ECHO, HAS_FAILS, HAS_WORDS = 1, 2, 4, 8, 16, 32, 64, 128
local INLINE = 8
local RECORD_BYTES = 100 -- what a record takes beside its head and its ack vals

local function has(record, flag)
  return band(record.flags, flag) ~= 0
end

local function read_head(head)
  local flags, n, birth, at = unpack_bytes('>BHc5', head)
  local record = { flags = flags, n = n, live = n, birth = birth, fails = '', words = '', tokens = '' }
  if flags % 2 == 0 then record.kept = RECORD_BYTES + #head + (n > INLINE and 8 * n or 0) end -- an orphan
  if n <= INLINE then
    record.vals, at = sub(head, at, at + 8 * n - 1), at + 8 * n
  end
  if band(flags, HAS_BITMAP) ~= 0 then
    local size = math.ceil(n / 8)
    record.live = unpack_bytes('>H', head, at)
    record.bitmap, at = sub(head, at + 2, at + 1 + size), at + 2 + size
  end
  if band(flags, HAS_TICKS) ~= 0 then
    local size = ticks_size(head, at, n)
    record.ticks, at = sub(head, at, at + size - 1), at + size
  end
  if band(flags, HAS_FAILS) ~= 0 then
    local size = unpack_bytes('>I4', head, at)
    record.fails, at = sub(head, at + 4, at + 3 + size), at + 4 + size
  end
  if band(flags, HAS_WORDS) ~= 0 then
    local size = 10 * unpack_bytes('>H', head, at)
    record.words, at = sub(head, at + 2, at + 1 + size), at + 2 + size
  end
  if at <= #head then record.tokens = sub(head, at) end
  return record
end

local function write_head(record)
  local flags = band(record.flags, INITIALISED + QUIET + HAS_IDS + ECHO)
  local inline = record.n <= INLINE and record.vals or ''
  local live, ticks, early = '', record.ticks or '', ''
  if record.bitmap then
    flags, live = flags + HAS_BITMAP, pack('>H', record.live) .. record.bitmap
  end
  if record.ticks then flags = flags + HAS_TICKS end
  if record.fails ~= '' then
    flags, early = flags + HAS_FAILS, pack('>I4', #record.fails) .. record.fails
  end
  if record.words ~= '' then
    flags, early = flags + HAS_WORDS, early .. pack('>H', #record.words / 10) .. record.words
  end
  return pack('>BHc5', flags, record.n, record.birth) .. inline .. live .. ticks .. early .. record.tokens
end

-- Ack vals of n roots, if there is one for each or a single one that all have in common: one for each.
local function each_val(vals, n)
  return #vals < 8 * n and string.rep(vals, n) or vals
end

local function new_record(flags, vals, n)
  local birth = pack('>I5', now_ms() % 2 ^ 40)
  return { flags = flags, n = n, live = n, birth = birth, vals = vals, fails = '', words = '', tokens = '' }
end

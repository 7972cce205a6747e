-- The keys of one shard, in the order in which every script that works on blocks declares them.
--
-- KEYS[1]            meta     hash    settings, rotation state, counters
-- KEYS[2], KEYS[3]   scratch  string  left and right operand of an XOR; deleted before the script ends
-- KEYS[4 ..]         heads    hash    block -> head, one hash per bucket: nursery .. death row, expired
--        ..          vals     hash    block -> ack vals of blocks too large to be kept in their head
--        ..          ids      hash    block -> packed message ids
--        ..          finished hash    chunk -> bitmap of finished blocks, one hash per tick: newest .. oldest
--        ..          streams  stream  completion and failure stream of each spout named in ARGV[3]
-- ARGV[1]            buckets  count
-- ARGV[2]            now_ms   clock override for tests; empty: the server's clock
-- ARGV[3]            spouts   2 bytes each

local call = redis.call
local pack, unpack_bytes = struct.pack, struct.unpack
local meta, scratch_a, scratch_b = KEYS[1], KEYS[2], KEYS[3]
local buckets = tonumber(ARGV[1])
local EXPIRED = buckets + 1

local heads, vals, ids, finished = {}, {}, {}, {}
for bucket = 1, EXPIRED do
  heads[bucket] = KEYS[3 + bucket]
  vals[bucket] = KEYS[3 + EXPIRED + bucket]
  ids[bucket] = KEYS[3 + 2 * EXPIRED + bucket]
end
for tick = 1, buckets do
  finished[tick] = KEYS[3 + 3 * EXPIRED + tick]
end

local streams_at = 3 + 3 * EXPIRED + buckets
local completion_stream, failure_stream = {}, {}
for i = 1, #ARGV[3] / 2 do
  local spout = unpack_bytes('>H', ARGV[3], 2 * i - 1)
  completion_stream[spout] = KEYS[streams_at + 2 * i - 1]
  failure_stream[spout] = KEYS[streams_at + 2 * i]
end

local now_ms = tonumber(ARGV[2])
if not now_ms then
  local time = call('TIME')
  now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
end

-- The spout is the top 12 bits of every root, so of its block.
local function spout_of(block)
  return math.floor(unpack_bytes('>H', block) / 16)
end

-- Finds the heads of blocks, newest bucket first. Returns two arrays that run parallel to blocks: head or false, bucket.
local function locate(blocks)
  local found, at, missing = {}, {}, {}
  for i = 1, #blocks do
    found[i], missing[i] = false, i
  end
  for bucket = 1, EXPIRED do
    if #missing == 0 then break end
    local fields = {}
    for i = 1, #missing do fields[i] = blocks[missing[i]] end
    local values, still = call('HMGET', heads[bucket], unpack(fields)), {}
    for i = 1, #missing do
      if values[i] then
        found[missing[i]], at[missing[i]] = values[i], bucket
      else
        still[#still + 1] = missing[i]
      end
    end
    missing = still
  end
  return found, at
end

-- Reads a vector of one 2-byte index per root: 'block(8) count(2) index(2) ..' repeated. Returns blocks and their indexes.
local function read_indexes(packed)
  local blocks, indexes, at = {}, {}, 1
  while at <= #packed do
    local block, count = unpack_bytes('>c8H', packed, at)
    local list = {}
    for i = 1, count do list[i] = unpack_bytes('>H', packed, at + 8 + 2 * i) end
    blocks[#blocks + 1], indexes[#indexes + 1] = block, list
    at = at + 10 + 2 * count
  end
  return blocks, indexes
end

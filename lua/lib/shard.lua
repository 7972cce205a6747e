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

local call, keys, args = redis.call, KEYS, ARGV
local pack, unpack_bytes = struct.pack, struct.unpack
local floor, sub, find = math.floor, string.sub, string.find
local meta, scratch_a, scratch_b = keys[1], keys[2], keys[3]
local buckets = tonumber(args[1])
local NURSERY, EXPIRED = 1, buckets + 1

-- Where each kind of key begins: the heads of bucket 1 are keys[HEADS + 1].
local HEADS, VALS, IDS = 3, 3 + EXPIRED, 3 + 2 * EXPIRED
local FINISHED = 3 + 3 * EXPIRED
local STREAMS = FINISHED + buckets

local known_now_ms = tonumber(args[2])

local function now_ms()
  if not known_now_ms then
    local time = call('TIME')
    known_now_ms = time[1] * 1000 + floor(time[2] / 1000)
  end
  return known_now_ms
end

-- The spout is the top 12 bits of every root, so of its block.
local function spout_of(block)
  return floor(unpack_bytes('>H', block) / 16)
end

-- The position among the keys of a spout's completion stream; its failure stream is the next.
local function stream_of(spout)
  for i = 1, #args[3], 2 do
    if unpack_bytes('>H', args[3], i) == spout then return STREAMS + i end
  end
end

-- Finds the heads of blocks, newest bucket first. Returns two arrays that run parallel to blocks: head or false, bucket.
local function locate(blocks)
  local found, bucket_of, missing = call('HMGET', keys[HEADS + NURSERY], unpack(blocks)), {}, {}
  for i = 1, #blocks do
    if found[i] then bucket_of[i] = NURSERY else missing[#missing + 1] = i end
  end
  for bucket = NURSERY + 1, EXPIRED do
    if #missing == 0 then break end
    local fields, still = {}, {}
    for i = 1, #missing do fields[i] = blocks[missing[i]] end
    local values = call('HMGET', keys[HEADS + bucket], unpack(fields))
    for i = 1, #missing do
      local position = missing[i]
      if values[i] then
        found[position], bucket_of[position] = values[i], bucket
      else
        still[#still + 1] = position
      end
    end
    missing = still
  end
  return found, bucket_of
end

-- Reads 'block(8) count(2) index(2) ..', repeated. Returns blocks and, parallel to them, lists of indexes.
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

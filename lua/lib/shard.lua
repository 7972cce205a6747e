-- exports: call, keys, args, meta, counters, scratch_a, scratch_b, buckets, NURSERY, EXPIRED
-- exports: QUARANTINE, HEADS, VALS, IDS, FINISHED, spout_of, stream_of
-- needs: bytes
-- The keys of one shard, in the order in which every script that works on blocks declares them.
--
-- KEYS[1]            meta     hash    settings, rotation state: an executor reads it only
-- KEYS[2], KEYS[3]   scratch  string  left and right operand of an XOR; deleted before the script ends
-- KEYS[4]            quarantine hash  where it was -> what could not be read (lib/sound.lua)
-- KEYS[5]            counters hash    what was counted, time of the newest init
-- KEYS[6 ..]         heads    hash    block -> head, one hash per bucket: nursery .. death row, expired
--        ..          vals     hash    block -> ack vals of blocks too large to be kept in their head
--        ..          ids      hash    block -> packed message ids
--        ..          finished hash    chunk -> bitmap of finished blocks, one hash per tick: newest .. oldest
--        ..          streams  stream  completion and failure stream of each spout named in ARGV[3]
-- ARGV[1]            buckets  count
-- ARGV[2]            now_ms   clock override for tests; empty: the server's clock
-- ARGV[3]            spouts   2 bytes each

local call, keys, args = redis.call, KEYS, ARGV
local meta, scratch_a, scratch_b, counters = keys[1], keys[2], keys[3], keys[5]
local buckets = tonumber(args[1])
local NURSERY, EXPIRED = 0, buckets

-- Where each kind of key begins: the heads of a bucket are keys[HEADS + bucket], the newest of the finished blocks
-- keys[FINISHED].
local QUARANTINE, HEADS = 4, 6
local VALS, IDS, FINISHED = HEADS + buckets + 1, HEADS + 2 * (buckets + 1), HEADS + 3 * (buckets + 1)
local STREAMS = FINISHED + buckets

-- The spout is the top 12 bits of every root, so of its block.
local function spout_of(block)
  return floor(unpack_bytes('>H', block) / 16)
end

-- The position among the keys of a spout's completion stream; its failure stream is the next.
local function stream_of(spout)
  for i = 1, #args[3], 2 do
    if unpack_bytes('>H', args[3], i) == spout then return STREAMS + i - 1 end
  end
end

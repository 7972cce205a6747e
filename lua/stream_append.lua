-- needs: bytes
-- Appends the next chunk of staged entries to a stream of the user's. However often it is called, and by whomever, each
-- chunk of a batch is appended once, in the order of its parts.
--
-- KEYS[1]  stream   stream  of the user's
-- KEYS[2]  staged   hash    number of a chunk -> its entries: fields(2), then size(4) and bytes of each name and value
-- KEYS[3]  written  hash    how far the batches of a query have come: done, batch, part, chunk
-- ARGV[1]  batch    number, higher than that of any batch before
-- ARGV[2]  parts    count of parts of the batch
-- ARGV[3]  part     number of the part that is staged there
-- ARGV[4]  chunks   count of chunks of the part
-- Returns  'more', 'done' if the part is appended, or 'gone' if the chunk is not there; the number of the next chunk
-- Emits    nothing

local stream, staged, written = KEYS[1], KEYS[2], KEYS[3]
local batch, parts, part, chunks = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

local at = redis.call('HMGET', written, 'done', 'batch', 'part', 'chunk')
local at_part, chunk = 0, 0
if tonumber(at[2]) == batch then at_part, chunk = tonumber(at[3]), tonumber(at[4]) end
if (tonumber(at[1]) or -1) >= batch or at_part > part then return { 'done', chunks } end

local entries = {}
if chunk < chunks then
  local packed = redis.call('HGET', staged, chunk)
  if at_part < part or not packed then return { 'gone', chunk } end
  redis.call('XLEN', stream) -- refuses a key of a wrong type before the first write
  local place = 1
  while place <= #packed do
    local count, words = nil, { '*' }
    count, place = unpack_bytes('>I2', packed, place)
    for i = 2, 2 * count + 1 do
      local size
      size, place = unpack_bytes('>I4', packed, place)
      words[i], place = sub(packed, place, place + size - 1), place + size
    end
    entries[#entries + 1] = words
  end
end

for i = 1, #entries do
  redis.call('XADD', stream, unpack(entries[i]))
end
chunk = chunk + 1
local is_over = chunk >= chunks
if is_over then at_part, chunk = part + 1, 0 end
redis.call('HSET', written, 'batch', ARGV[1], 'part', at_part, 'chunk', chunk)
if is_over and at_part >= parts then redis.call('HSET', written, 'done', ARGV[1]) end
return { is_over and 'done' or 'more', chunk }

-- needs: bytes, shard, batch, clock, lookup, head, live, settle, changes
-- Restarts the clock of roots: of whole blocks, or of single roots, whose neighbours in the block keep theirs.
--
-- KEYS     as in lib/shard.lua
-- ARGV[4]  roots  bytes: block(8) count(2) then count times index(2); repeated
-- ARGV[5]  whole  bytes: block(8) of which all roots are meant; repeated
-- Returns  extended: count of roots that were pending
-- Emits    nothing

call('DEL', scratch_a) -- a first write that is allowed when memory is full, so that all others are too
local blocks, indexes = read_roots(args[4])
for at = 1, #args[5], 8 do blocks[#blocks + 1] = sub(args[5], at, at + 7) end
local found, bucket_of = locate(blocks)
local tick = current_tick()
local extended = 0

for i = 1, #blocks do
  local record = found[i] and read_head(found[i])
  if record and has(record, INITIALISED) then
    local live = indexes[i] and live_among(record, indexes[i])
    local count = live and #live or record.live
    if count > 0 then
      restart_clock(record, live, tick)
      settle(blocks[i], record, bucket_of[i], false)
      extended = extended + count
      note_newest()
    end
  end
end

flush()
return extended

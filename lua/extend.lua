-- needs: shard, batch, clock, lookup, head, live, settle, changes
-- Restarts the clock of single roots; their neighbours in the block keep theirs.
--
-- KEYS     as in lib/shard.lua
-- ARGV[4]  roots  bytes: block(8) count(2) then count times index(2); repeated
-- Returns  extended: count of roots that were pending
-- Emits    nothing

call('DEL', scratch_a) -- a first write that is allowed when memory is full, so that all others are too
local blocks, indexes = read_roots(args[4])
local found, bucket_of = locate(blocks)
local tick = current_tick()
local extended = 0

for i = 1, #blocks do
  local record = found[i] and read_head(found[i])
  if record and has(record, INITIALISED) then
    local live = live_among(record, indexes[i])
    if #live > 0 then
      restart_clock(record, live, tick)
      settle(blocks[i], record, bucket_of[i], false)
      extended = extended + #live
      note_newest()
    end
  end
end

flush()
return extended

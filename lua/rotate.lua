-- needs: numbers, shard, clock, history
-- Ages every bucket by one step, if a tick has passed since the last time and the expired bucket has been drained.
-- Any number of rotators may call it: the server's clock decides.
--
-- turned_ms is the time of the last step as the records see it: no record in the older buckets was born after it. So a
-- store that nobody rotated for long catches up by steps of one tick, but never ages a record before its time.
--
-- KEYS     as in lib/shard.lua
-- ARGV[4]  tick_ms  time between two steps
-- Returns  {'turned' or 'early' or 'waiting', ms until the next step is due}
-- Emits    nothing

call('DEL', scratch_a) -- a first write that is allowed when memory is full, so that all others are too
note_history()
local tick_ms, now = tonumber(args[4]), now_ms()
local newest_ms = tonumber(call('HGET', counters, 'newest_ms')) or 0
local turned_ms = whole_number(call('HGET', meta, 'turned_ms'), now)

if not turned_ms then -- the store was lost, its clock set back, or it is no time: count from now on
  call('HSET', meta, 'turned_ms', now)
  turned_ms = now
end
if now < turned_ms + tick_ms then return { 'early', turned_ms + tick_ms - now } end
if call('EXISTS', keys[HEADS + EXPIRED]) == 1 then
  redis.pcall('HINCRBY', counters, 'waits', 1)
  return { 'waiting', 0 }
end

local function age(first, last)
  for position = last, first, -1 do
    if call('EXISTS', keys[position]) == 1 then call('RENAME', keys[position], keys[position + 1]) end
  end
end

age(HEADS + NURSERY, HEADS + EXPIRED - 1)
age(VALS + NURSERY, VALS + EXPIRED - 1)
age(IDS + NURSERY, IDS + EXPIRED - 1)
local kept = 0
for bucket = NURSERY, EXPIRED do kept = kept + call('EXISTS', keys[HEADS + bucket]) end
if kept == 0 then call('HDEL', counters, 'early_bytes') end -- other programs may have removed what was counted
call('UNLINK', keys[FINISHED + buckets - 1])
age(FINISHED, FINISHED + buckets - 2)
redis.pcall('HINCRBY', counters, 'late_ms', now - turned_ms - tick_ms)
turned_ms = math.min(now, math.max(turned_ms + tick_ms, newest_ms))
call('HSET', meta, 'turned_ms', turned_ms, 'tick', current_tick() + 1)
return { 'turned', math.max(0, turned_ms + tick_ms - now) }

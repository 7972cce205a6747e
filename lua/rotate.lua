-- uses: shard
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

local tick_ms = tonumber(ARGV[4])
local state = call('HMGET', meta, 'turned_ms', 'newest_ms')
local turned_ms = tonumber(state[1]) or now_ms
local newest_ms = tonumber(state[2]) or 0

if not state[1] or turned_ms > now_ms then -- first call, or the clock was set back: count from now on
  call('HSET', meta, 'turned_ms', now_ms)
  turned_ms = now_ms
end
if now_ms < turned_ms + tick_ms then return { 'early', turned_ms + tick_ms - now_ms } end
if call('EXISTS', heads[EXPIRED]) == 1 then
  call('HINCRBY', meta, 'waits', 1)
  return { 'waiting', 0 }
end

for bucket = buckets, 1, -1 do
  for _, keys in ipairs({ heads, vals, ids }) do
    if call('EXISTS', keys[bucket]) == 1 then call('RENAME', keys[bucket], keys[bucket + 1]) end
  end
end
call('UNLINK', finished[buckets])
for tick = buckets - 1, 1, -1 do
  if call('EXISTS', finished[tick]) == 1 then call('RENAME', finished[tick], finished[tick + 1]) end
end
turned_ms = math.min(now_ms, math.max(turned_ms + tick_ms, newest_ms))
call('HSET', meta, 'turned_ms', turned_ms)
call('HINCRBY', meta, 'tick', 1)
return { 'turned', math.max(0, turned_ms + tick_ms - now_ms) }

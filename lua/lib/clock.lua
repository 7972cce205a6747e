-- exports: now_ms, current_tick, restart_clock
-- needs: bytes, time, shard
-- Time in ms by the server's clock, in ticks by the shard's rotations, and the clocks of single roots.

local known_now_ms = tonumber(args[2])

-- The same for the whole call.
local function now_ms()
  known_now_ms = known_now_ms or server_ms()
  return known_now_ms
end

local function current_tick()
  return tonumber(call('HGET', meta, 'tick') or 0)
end

-- Restarts the clock of roots: like a root born at this tick, they live until the nursery of this tick expires.
local function restart_clock(record, indexes, tick)
  local stamp = pack('>I4', tick)
  if #indexes == record.live then -- all that matter
    record.ticks = string.rep(stamp, record.n)
    return
  end
  local ticks = record.ticks or string.rep('\0\0\0\0', record.n)
  if #indexes * 8 < record.n then
    -- Few: cutting the string at each is cheaper than taking it apart, and leaves less to Lua's collector.
    for i = 1, #indexes do
      ticks = sub(ticks, 1, 4 * indexes[i]) .. stamp .. sub(ticks, 4 * indexes[i] + 5)
    end
    record.ticks = ticks
    return
  end
  local pieces = {}
  for index = 0, record.n - 1 do pieces[index + 1] = sub(ticks, 4 * index + 1, 4 * index + 4) end
  for i = 1, #indexes do pieces[indexes[i] + 1] = stamp end
  record.ticks = table.concat(pieces)
end

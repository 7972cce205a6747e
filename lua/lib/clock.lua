-- exports: now_ms, current_tick, restart_clock, extended_at, ticks_size
-- needs: bytes, time, numbers, shard
-- Time in ms by the server's clock, in ticks by the shard's rotations, and the clocks of single roots.
--
-- ticks := tick of the last extend of each root, 4 bytes each; or, if it is the same for all that are live, once, with
-- the top bit set: a block that is extended whole takes no more memory for that, however many roots it has

local FOR_ALL = 2 ^ 31
local known_now_ms = tonumber(args[2])

-- The same for the whole call.
local function now_ms()
  known_now_ms = known_now_ms or server_ms()
  return known_now_ms
end

-- What another program wrote there counts as the first: the next rotation writes a number again.
local function current_tick()
  return whole_number(call('HGET', meta, 'tick'), FOR_ALL - 1) or 0
end

-- Bytes that the ticks of n roots take, which begin somewhere in a head.
local function ticks_size(head, at, n)
  return (string.byte(head, at) or 0) >= 128 and 4 or 4 * n
end

local function each_tick(record)
  local ticks = record.ticks or '\0\0\0\0'
  if #ticks > 4 then return ticks end
  return string.rep(pack('>I4', unpack_bytes('>I4', ticks) % FOR_ALL), record.n)
end

-- The tick at which the clock of a root was restarted, in a record with ticks.
local function extended_at(record, index)
  return unpack_bytes('>I4', record.ticks, #record.ticks > 4 and 4 * index + 1 or 1) % FOR_ALL
end

-- Restarts the clock of live roots, or of all for nil: like a root born at this tick, they live until the nursery of
-- this tick expires.
local function restart_clock(record, indexes, tick)
  if not indexes or #indexes == record.live then -- all that matter
    record.ticks = pack('>I4', FOR_ALL + tick)
    return
  end
  local stamp, ticks = pack('>I4', tick), each_tick(record)
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

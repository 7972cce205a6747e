-- exports: count, counted, put_field, delete_field, delete_fields, add_item, note_newest, flush
-- needs: bytes, shard, clock, finished, scratch
-- What a call changes, gathered first and written last: until flush() nothing but scratch keys has been written, so a
-- call that is refused or fails leaves the shard as it was.

local puts, deletions = {}, {} -- position of a hash among the keys -> fields and values, fields
local entries, history = {}, '' -- cause -> position of a stream among the keys -> items; what entries say of the server
local ranges, counts, newest_ms = {}, {}, nil -- of lists whose fields are deleted: hash, list, first, last

local function count(counter, by)
  if by ~= 0 then counts[counter] = (counts[counter] or 0) + by end
end

local function counted(counter) return counts[counter] or 0 end

local function queue(lists, key, first, second)
  local list = lists[key] or {}
  lists[key] = list
  list[#list + 1] = first
  list[#list + 1] = second
end

local function put_field(hash, field, value) queue(puts, hash, field, value) end
local function delete_field(hash, field) queue(deletions, hash, field) end
-- Of a hash that the call has read, so that its type is known.
local function delete_fields(hash, list, first, last) ranges[#ranges + 1] = { hash, list, first, last } end

-- Each call adds at most one entry to the completion stream of a spout, and one per cause to its failure stream.
-- cause: a table of reason, component, error, fatal; without reason for completions.
local function add_item(stream, cause, item)
  entries[cause] = entries[cause] or {}
  queue(entries[cause], stream, item)
end

-- A clock starts now: rotation must not age it before its time.
local function note_newest() newest_ms = now_ms() end

-- Reads every key that is about to be written, so that one of a wrong type is refused while nothing is written.
local function check_types()
  if next(entries) then history = sub(call('HGET', meta, 'history') or '', 1, 64) end
  for _, by_stream in pairs(entries) do
    for stream in pairs(by_stream) do call('XLEN', keys[stream]) end
  end
  for hash in pairs(puts) do call('HLEN', keys[hash]) end
  for hash in pairs(deletions) do call('HLEN', keys[hash]) end
  if newest_ms or next(counts) then call('HLEN', counters) end
end

local function write_streams()
  for cause, by_stream in pairs(entries) do
    for stream, items in pairs(by_stream) do
      if cause.reason then
        call('XADD', keys[stream], '*', 'at_ms', now_ms(), 'history', history, 'reason', cause.reason, 'component',
          cause.component, 'error', cause.error, 'fatal', cause.fatal, 'items', table.concat(items))
      else
        call('XADD', keys[stream], '*', 'at_ms', now_ms(), 'history', history, 'items', table.concat(items))
      end
    end
  end
end

local function flush()
  free_scratch() -- before anything can be refused
  check_types()
  local bitmaps = finished_bitmaps()
  if newest_ms then
    local known_ms = tonumber(call('HGET', counters, 'newest_ms')) or 0
    call('HSET', counters, 'newest_ms', math.max(newest_ms, known_ms)) -- the clock may have been set back
  end
  write_streams()
  for hash, fields in pairs(deletions) do call('HDEL', keys[hash], unpack(fields)) end
  for i = 1, #ranges do
    local hash, list, first, last = unpack(ranges[i])
    call('HDEL', keys[hash], unpack(list, first, last))
  end
  for hash, fields in pairs(puts) do call('HSET', keys[hash], unpack(fields)) end
  if #bitmaps > 0 then call('HSET', keys[FINISHED], unpack(bitmaps)) end
  -- A counter that another program spoilt must not make a call fail that has taken effect.
  for counter, by in pairs(counts) do redis.pcall('HINCRBY', counters, counter, by) end
end

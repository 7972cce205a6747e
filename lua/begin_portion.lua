-- needs: time, sequences, portion
-- Begins the next portion of a partition's rows, in a Spark task that has dealt with all rows before it; so it also ends
-- the portion before. Another attempt of the task gets the same rows and roots. Roots that no worker has been at for
-- half a timeout may be over soon, and then be forgotten: the portion gets new ones, unless its sink has returned, and
-- the old ones are to be failed. redis_acker/store/run_records.py says what each state means.
--
-- KEYS[1]  progress   hash  partition -> how far the run has come there (lib/portion.lua); name -> of the run
-- KEYS[2]  sequences  hash  spout -> next sequence number
-- ARGV[1]  name       of the run
-- ARGV[2]  partition  its field
-- ARGV[3]  offset     rows of the partition that the task has dealt with
-- ARGV[4]  before     checksum of these rows
-- ARGV[5]  rows       of the portion; 0: none is left
-- ARGV[6]  sum        checksum up to its end
-- ARGV[7]  blocks     that hold its roots
-- ARGV[8]  spout      number
-- ARGV[9]  timeout_ms of roots
-- ARGV[10] now_ms     clock override for tests; empty: the server's clock
-- Returns  state, rows, checksum, first sequence, stage, time in ms, and rows and first sequence of roots to be failed
-- Emits    nothing

local progress, sequences, name, field = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local offset, before, rows, sum = tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5]), ARGV[6]
local blocks, spout, timeout_ms = tonumber(ARGV[7]), ARGV[8], tonumber(ARGV[9])
local now_ms = tonumber(ARGV[10]) or server_ms()
if redis.call('HGET', progress, 'name') ~= name then return { 'gone', 0, '', '0', 0, now_ms, 0, '0' } end
local known = redis.call('HGET', progress, field)
local partition = read_partition(known)

local function finish_portion()
  partition.done, partition.done_sum = partition.done + partition.rows, partition.sum
  partition.failed = partition.failed + partition.now_failed
  partition.rows, partition.sum, partition.first, partition.stage, partition.now_failed = 0, '-', '0', 0, 0
end

local function of_portion(state)
  local left_rows, left_first = partition.left_rows, partition.left_first
  return { state, partition.rows, partition.sum, partition.first, partition.stage, now_ms, left_rows, left_first }
end

local function of_done(state) return { state, partition.done, partition.done_sum, '0', 0, now_ms, 0, '0' } end

local is_late = now_ms - partition.touched_ms >= timeout_ms / 2
if partition.rows > 0 and partition.stage == SUNK then
  if partition.done + partition.rows <= offset then finish_portion() end -- the caller is past it
end
if partition.done < offset then return of_done('lost') end
if partition.done > offset and rows == 0 then return of_done('other') end -- another attempt has done more rows
if partition.done == offset then
  if known and partition.done_sum ~= before then return of_done('other') end
  if partition.rows > 0 and rows == 0 then return of_portion('other') end -- another attempt has seen more rows
  if partition.rows > 0 and not is_late then return of_portion('again') end
  if partition.rows > 0 and partition.stage == SUNK then return of_portion('late') end
end
local state = 'done'
if partition.done == offset and rows > 0 then
  state = partition.rows > 0 and 'anew' or 'new'
  partition.left_rows, partition.left_first = partition.rows, partition.first
  local first = take_sequences(sequences, spout, blocks, now_ms)
  if not first then return redis.error_reply('ERR all sequence numbers of this spout are used') end
  partition.rows, partition.sum, partition.first = rows, sum, first
  partition.stage, partition.touched_ms, partition.now_failed = 0, now_ms, 0
elseif partition.done == offset then
  partition.stage = ENDED
end
redis.call('HSET', progress, field, write_partition(partition))
return state == 'done' and of_done(state) or of_portion(state)

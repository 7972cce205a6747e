-- exports: note_history
-- needs: bytes, shard, clock
-- Names the history of the shard that begins when its server is restarted or replaced, and may have lost the last
-- writes. Entries of the streams carry that name.
--
-- history := since when, in ms, '-', 16 digits of the server's run_id

-- A server that does not tell its run_id, or not to this user, has no history.
local function note_history()
  local info = redis.pcall('INFO', 'server')
  local run_id = type(info) == 'string' and string.match(info, 'run_id:(%x+)')
  if not run_id then return end
  run_id = sub(run_id, 1, 16)
  local known = call('HGET', meta, 'history')
  if known and string.match(known, '^%d+%-(%x+)$') == run_id then return end
  local history = string.format('%.0f-%s', now_ms(), run_id)
  call('HSET', meta, 'history', history)
end

-- exports: read_partition, write_partition, SUNK, ENDED
-- How far a Spark run has come in one partition: the rows that are done, and the portion that is in work, if any.
-- A text of eleven words, which redis_acker/store/run_records.py reads too:
--   done done_sum failed   rows that are done, their checksum, how many of them failed
--   rows sum first         rows of the portion (0: none is in work), checksum up to its end, its first block sequence
--   stage touched_ms       0 begun, 1 its roots are pending, 2 its sink has returned; when a worker was last at it
--                          without a portion: 3 if a task has come to the end of the partition, for people who look
--   now_failed             how many of its rows failed
--   left_rows left_first   rows and first block sequence of the roots that it had before, until they have been failed
-- Checksums are 16 hex digits, made and compared by workers.

local SUNK, ENDED = 2, 3
local WORDS = { 'done', 'done_sum', 'failed', 'rows', 'sum', 'first', 'stage', 'touched_ms', 'now_failed',
  'left_rows', 'left_first' }
local IS_TEXT = { done_sum = true, sum = true, first = true, left_first = true }

-- A partition that is not known yet has nothing done.
local function read_partition(text)
  local partition, i = {}, 0
  for word in string.gmatch(text or '0 0000000000000000 0 0 - 0 0 0 0 0 0', '%S+') do
    i = i + 1
    partition[WORDS[i]] = IS_TEXT[WORDS[i]] and word or tonumber(word)
  end
  return partition
end

local function write_partition(partition)
  local words = {}
  for i = 1, #WORDS do
    local value = partition[WORDS[i]]
    words[i] = IS_TEXT[WORDS[i]] and value or string.format('%.0f', value)
  end
  return table.concat(words, ' ')
end

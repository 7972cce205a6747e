-- Counts entries in a range of a stream of the user's, so that nobody has to read them for that. Stops early where they
-- are large, so that it does not hold up the server.
--
-- KEYS[1]  stream  stream  of the user's
-- ARGV[1]  after   id: entries behind this one count
-- ARGV[2]  last    id: entries up to this one count
-- ARGV[3]  most    count of entries to look at
-- Returns  count, 0 if there is none; id of the last one counted
-- Emits    nothing

local STEP, MOST_BYTES = 10, 500000
local stream, at, last, most = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local found, bytes = 0, 0

while found < most and bytes < MOST_BYTES do
  local behind, step = '(' .. at, math.min(STEP, most - found)
  local entries = redis.call('XRANGE', stream, behind, last, 'COUNT', step)
  for i = 1, #entries do
    for j = 1, #entries[i][2] do
      bytes = bytes + #entries[i][2][j]
    end
  end
  found = found + #entries
  if #entries > 0 then at = entries[#entries][1] end
  if #entries < step then break end
end
return { found, at }

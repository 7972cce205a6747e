-- exports: note_latency
-- needs: bytes, clock, changes
-- How long roots took from init to completion: a histogram for each spout, counted where it happens, since readers
-- delete the events. One counter a call for each bound that was met, however many roots.

local BOUNDS_MS = { 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000, 60000, 120000, 300000, 600000, 1800000,
  3600000 }
local HALF = 2 ^ 39 -- births are the low 40 bits of a time
local last_spout, last_birth, age_ms, counter, sum -- roots that complete together were mostly born together

local function counter_for(spout, birth)
  age_ms = (now_ms() - unpack_bytes('>I5', birth)) % (2 * HALF)
  if age_ms > HALF then age_ms = 0 end -- the clock was set back
  local bound = 'more'
  for i = #BOUNDS_MS, 1, -1 do
    if age_ms <= BOUNDS_MS[i] then bound = BOUNDS_MS[i] end
  end
  last_spout, last_birth = spout, birth
  counter, sum = 'latency:' .. spout .. ':' .. bound, 'latency_ms:' .. spout
end

-- amount: of roots of one block that complete now.
local function note_latency(spout, birth, amount)
  if spout ~= last_spout or birth ~= last_birth then counter_for(spout, birth) end
  count(counter, amount)
  count(sum, amount * age_ms)
end

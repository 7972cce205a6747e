-- Pure-Lua stand-in for Redis's `bit` library, for fakeredis only.
-- Arguments: integers of up to 53 bits, taken modulo 2^32. Results: signed 32-bit, as in Redis.

local WORD = 2 ^ 32

-- AND of every pair of nibbles; the other operations follow from it.
local and_nibbles = {}
for a = 0, 15 do
  for b = 0, 15 do
    local result, x, y = 0, a, b
    for power = 0, 3 do
      if x % 2 == 1 and y % 2 == 1 then result = result + 2 ^ power end
      x, y = math.floor(x / 2), math.floor(y / 2)
    end
    and_nibbles[a * 16 + b] = result
  end
end

local function unsigned(x) return x % WORD end

local function tobit(x)
  x = unsigned(x)
  if x >= WORD / 2 then return x - WORD end
  return x
end

local function and_words(a, b)
  local result, scale = 0, 1
  for _ = 1, 8 do
    local low_a, low_b = a % 16, b % 16
    result = result + and_nibbles[low_a * 16 + low_b] * scale
    a, b, scale = (a - low_a) / 16, (b - low_b) / 16, scale * 16
  end
  return result
end

local function or_words(a, b) return a + b - and_words(a, b) end
local function xor_words(a, b) return a + b - 2 * and_words(a, b) end

-- Redis's band, bor and bxor take one argument or more.
local function folded(operation)
  return function(first, ...)
    local result = unsigned(first)
    for _, other in ipairs({ ... }) do
      result = operation(result, unsigned(other))
    end
    return tobit(result)
  end
end

local function lshift(x, n)
  return tobit(unsigned(x) * 2 ^ (n % 32))
end

local function rshift(x, n)
  return tobit(math.floor(unsigned(x) / 2 ^ (n % 32)))
end

local function arshift(x, n)
  return math.floor(tobit(x) / 2 ^ (n % 32))
end

local function bnot(x)
  return tobit(WORD - 1 - unsigned(x))
end

return {
  tobit = tobit,
  bnot = bnot,
  band = folded(and_words),
  bor = folded(or_words),
  bxor = folded(xor_words),
  lshift = lshift,
  rshift = rshift,
  arshift = arshift,
}

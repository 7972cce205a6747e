-- The items of a format of `struct`, and integers as bytes. struct.lua, which comes after it, packs and unpacks.
-- Formats: '>' '<' ' ', b B h H l L i[n] I[n] (n = 1..8), x, s, c[n] and c0. No alignment ('!'), no floats.
-- Integers pass through doubles, so an eight-byte one is exact up to 2^53, as in Redis.

local SIZES = { b = 1, B = 1, h = 2, H = 2, i = 4, I = 4, l = 8, L = 8 }

local function put(value, size, big)
  -- Redis truncates towards zero, then keeps the low bytes in two's complement.
  value = value < 0 and math.ceil(value) or math.floor(value)
  local bytes = {}
  for i = 1, size do
    local low = value % 256
    bytes[big and size - i + 1 or i] = string.char(low)
    value = (value - low) / 256
  end
  return table.concat(bytes)
end

local function get(data, at, size, big, signed)
  local value = 0
  for i = 0, size - 1 do
    value = value * 256 + data:byte(big and at + i or at + size - 1 - i)
  end
  if signed and value >= 2 ^ (8 * size - 1) then value = value - 2 ^ (8 * size) end
  return value
end

-- Calls visit(option, size, big_endian) for each item of a format.
local function each(format, visit)
  local big, at = false, 1
  while at <= #format do
    local option = format:sub(at, at)
    local digits = option:match('[iIc]') and format:match('^%d+', at + 1) or ''
    at = at + 1 + #digits
    if option == '>' or option == '<' then
      big = option == '>'
    elseif SIZES[option] then
      local size = tonumber(digits) or SIZES[option]
      if size < 1 or size > 8 then error('integral size ' .. size .. ' is not within 1..8') end
      visit(option, size, big)
    elseif option == 'c' or option == 'x' then
      visit(option, tonumber(digits) or 1, big)
    elseif option == 's' then
      visit(option, 0, big)
    elseif option ~= ' ' then
      error("invalid format option '" .. option .. "'")
    end
  end
end

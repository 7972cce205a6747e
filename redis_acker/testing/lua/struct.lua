-- Pure-Lua stand-in for Redis's `struct` library, for fakeredis only.
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

local function pack(format, ...)
  local values, next_value, parts = { ... }, 1, {}
  each(format, function(option, size, big)
    if option == 'x' then
      parts[#parts + 1] = '\0'
      return
    end
    local value = values[next_value]
    next_value = next_value + 1
    if SIZES[option] then
      parts[#parts + 1] = put(assert(tonumber(value), 'number expected'), size, big)
    elseif option == 's' then
      parts[#parts + 1] = value .. '\0'
    else
      if size > #value then error('string too short') end
      parts[#parts + 1] = size == 0 and value or value:sub(1, size)
    end
  end)
  return table.concat(parts)
end

local function unpack_values(format, data, position)
  local at, values = position or 1, {}
  local function need(size)
    if at + size - 1 > #data then error('data string too short') end
  end
  each(format, function(option, size, big)
    if SIZES[option] then
      need(size)
      values[#values + 1] = get(data, at, size, big, option:match('%l') ~= nil)
    elseif option == 's' then
      local zero = data:find('\0', at, true)
      if not zero then error('unfinished string in data') end
      values[#values + 1] = data:sub(at, zero - 1)
      size = zero - at + 1
    elseif option == 'c' then
      -- c0 takes its length from the value just read, and replaces it.
      if size == 0 then
        size = table.remove(values)
        if type(size) ~= 'number' then error("format 'c0' needs a previous size") end
      end
      need(size)
      values[#values + 1] = data:sub(at, at + size - 1)
    else
      need(size)
    end
    at = at + size
  end)
  values[#values + 1] = at
  return unpack(values)
end

local function size_of(format)
  local total = 0
  each(format, function(option, size)
    if option == 's' or (option == 'c' and size == 0) then error('variable-size format') end
    total = total + size
  end)
  return total
end

return { pack = pack, unpack = unpack_values, size = size_of }

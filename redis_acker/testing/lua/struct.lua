-- Pure-Lua stand-in for Redis's `struct` library, for fakeredis only, behind the names of struct_items.lua.

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

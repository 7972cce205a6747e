-- Makes fakeredis's Lua look like Redis's: adds what is missing, refuses what Redis refuses.
-- Run once per fake server, with %BIT% and %STRUCT% replaced by the text of bit.lua, and of struct_items.lua and struct.lua.

local libraries = {
  bit = (function() %BIT% end)(),
  struct = (function() %STRUCT% end)(),
}

-- fakeredis refuses new globals, so the libraries are found through _G's metatable.
-- Redis raises on an unknown global; plain Lua would answer nil and hide a misspelt name.
setmetatable(_G, {
  __index = function(_, name)
    local library = libraries[name]
    if library == nil then
      error('Script attempted to access nonexistent global variable ' .. tostring(name), 2)
    end
    return library
  end,
  -- Otherwise one stray global would make fakeredis refuse every later script of the same server.
  __newindex = function(_, name)
    error('Script attempted to create global variable ' .. tostring(name), 2)
  end,
})

-- The fake server has neither an AOF nor replicas: there is nothing to switch off.
redis.REPL_NONE, redis.REPL_SLAVE, redis.REPL_REPLICA, redis.REPL_AOF, redis.REPL_ALL = 0, 2, 2, 1, 3
redis.set_repl = function() end

-- fakeredis's pcall gives the error text as a Python object; Redis gives a Lua string.
local pcall_in_python = redis.pcall
redis.pcall = function(...)
  local reply = pcall_in_python(...)
  if type(reply) == 'table' and reply.err ~= nil then
    return { err = tostring(reply.err) }
  end
  return reply
end

return redis.status_reply('OK')

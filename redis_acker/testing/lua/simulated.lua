-- Put in front of a script in tests: makes the server's time, and what expires by it, that of the first argument.
-- When a key expires is kept in a key beside it, which the test looks at whenever its time moves.

local redis = (function(real, now_ms)
  local simulated = {
    TIME = function() return { math.floor(now_ms / 1000), now_ms % 1000 * 1000 } end,
    PTTL = function(key)
      local until_ms = real.call('GET', key .. ':until')
      return until_ms and until_ms - now_ms or -1
    end,
    SET = function(key, value, ...)
      local option, for_ms = ...
      if option ~= 'PX' then return real.call('SET', key, value, ...) end
      real.call('SET', key .. ':until', now_ms + for_ms)
      return real.call('SET', key, value)
    end,
  }
  return setmetatable({
    call = function(command, ...)
      local stand_in = simulated[command]
      if stand_in then return stand_in(...) end
      return real.call(command, ...)
    end,
  }, { __index = real })
end)(redis, tonumber(table.remove(ARGV, 1)))


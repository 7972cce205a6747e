-- exports: component_counter
-- needs: shard, changes
-- Counts failures by the component that failed them. A shard names the first of them and no more, whatever its callers
-- think up.

local MOST = 100
local counter_of, named = {}, nil

local function component_counter(component)
  if counter_of[component] then return counter_of[component] end
  local counter = 'component:' .. component
  if call('HEXISTS', counters, counter) == 0 then
    named = named or tonumber(call('HGET', counters, 'components') or 0) or MOST
    if named < MOST then
      named = named + 1
      count('components', 1)
    else
      counter = 'other_components'
    end
  end
  counter_of[component] = counter
  return counter
end

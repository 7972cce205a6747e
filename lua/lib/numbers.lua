-- exports: whole_number
-- Numbers that the store keeps as text, where another program may write anything.

-- The whole number from 0 to most that a value says; nil if it says none.
local function whole_number(value, most)
  local number = tonumber(value)
  return number and number >= 0 and number <= most and math.floor(number) or nil
end

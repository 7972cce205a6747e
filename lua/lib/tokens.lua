-- exports: seen
-- needs: bytes
-- The tokens of a record, 12 bytes each: name(8) sequence(4). Of one name only the highest sequence is kept, because
-- its sender waits for the answer before it sends the next batch.

-- Returns true for a second delivery, else notes the token.
local function seen(record, token)
  local name, at = sub(token, 1, 8), 1
  while true do
    at = find(record.tokens, name, at, true)
    if not at then
      record.tokens = record.tokens .. token
      return false
    elseif at % 12 == 1 then
      if unpack_bytes('>I4', record.tokens, at + 8) >= unpack_bytes('>I4', token, 9) then return true end
      record.tokens = sub(record.tokens, 1, at - 1) .. token .. sub(record.tokens, at + 12)
      return false
    end
    at = at + 1
  end
end

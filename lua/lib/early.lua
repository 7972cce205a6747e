-- Early fails: those that came before the init of their block and wait for it in its record (lib/record.lua).

-- Reads early fails: calls visit(cause, indexes) for each.
local function each_early_fail(fails, visit)
  local at = 1
  while at <= #fails do
    local fatal, component_len, error_len, count = unpack_bytes('>BBHH', fails, at)
    local from, indexes = at + 6 + component_len, {}
    local cause = { reason = 'failed', fatal = fatal, component = sub(fails, at + 6, from - 1) }
    cause.error = sub(fails, from, from + error_len - 1)
    at = from + error_len
    for i = 1, count do indexes[i] = unpack_bytes('>H', fails, at + 2 * i - 2) end
    visit(cause, indexes)
    at = at + 2 * count
  end
end

-- exports: possible, keep_fail, each_early_fail
-- needs: bytes, shard
-- Early fails: those that come before the init of their block, and wait for it in its record.
--
-- early fails := fatal(1) component_len(1) error_len(2) count(2) component error index(2) ..; repeated

local MUCH_KEPT, SHORT = 50000, 100
local most_roots

-- Whether a block of this namespace can have a root of this index.
local function possible(index)
  most_roots = most_roots or tonumber(call('HGET', meta, 'block_size')) or 1024
  return index < most_roots
end

-- Calls visit(cause, indexes) for each fail that is whole.
local function each_early_fail(fails, visit)
  local at = 1
  while at + 5 <= #fails do
    local fatal, component_len, error_len, count = unpack_bytes('>BBHH', fails, at)
    local from, indexes = at + 6 + component_len, {}
    local cause = { reason = 'failed', fatal = fatal, component = sub(fails, at + 6, from - 1) }
    cause.error = sub(fails, from, from + error_len - 1)
    at = from + error_len
    if at + 2 * count > #fails + 1 then return end
    for i = 1, count do indexes[i] = unpack_bytes('>H', fails, at + 2 * i - 2) end
    visit(cause, indexes)
    at = at + 2 * count
  end
end

-- Keeps a fail of some roots; the first one of a root stands. Where much is kept, error texts are cut short. Returns
-- how many roots had none.
local function keep_fail(record, cause, list)
  local known, new = {}, {}
  each_early_fail(record.fails, function(_, indexes)
    for i = 1, #indexes do known[indexes[i]] = true end
  end)
  for i = 1, #list do
    if not known[list[i]] then new[#new + 1] = pack('>H', list[i]) end
  end
  if #new == 0 then return 0 end
  local error = #record.fails > MUCH_KEPT and sub(cause.error, 1, SHORT) or cause.error
  local sizes = pack('>BBHH', cause.fatal, #cause.component, #error, #new)
  record.fails = record.fails .. sizes .. cause.component .. error .. table.concat(new)
  return #new
end

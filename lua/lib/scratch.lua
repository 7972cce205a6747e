-- exports: use_scratch, free_scratch
-- needs: shard
-- The two scratch keys, in which BITOP and SETRANGE work on long strings.

local scratch_in_use = false

-- From here to free_scratch() nothing that is written reaches the AOF or the replicas: it is scratch only.
local function use_scratch()
  if scratch_in_use then return end
  scratch_in_use = true
  redis.set_repl(redis.REPL_NONE)
end

local function free_scratch()
  if not scratch_in_use then return end
  scratch_in_use = false
  call('DEL', scratch_a, scratch_b)
  redis.set_repl(redis.REPL_ALL)
end

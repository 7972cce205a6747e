-- needs: shard, history
-- Notes whether the server of a shard was restarted or replaced. Rotators call it often: entries that acks and fails
-- write carry what is noted; those of a drain what is true.
--
-- KEYS     as in lib/shard.lua
-- Returns  the name of the history
-- Emits    nothing

call('DEL', scratch_a) -- a first write that is allowed when memory is full, so that the next is too
note_history()
return call('HGET', meta, 'history')

-- Return the pauses to a process that does not claim, and restore those that it saw last.
-- KEYS: pause, pause_history, pauses_restored, epoch
-- ARGV: clock, new_name, last_born, remembered
-- The data in Redis gets `new_name` if it has none. `last_born` is its name when the process looked last, '' for never;
-- `remembered` the pauses that it saw then, '' for none, else JSON: see `callkeeper.calls.store.pausing.PauseMemory`.
-- Returns {name of the data, pauses}.
local is_empty = redis.call('HEXISTS', epoch_key, 'id') == 0
local born = redis.call('HGET', epoch_key, 'born')
if is_empty and not born then
    born = new_name
    redis.call('HSET', epoch_key, 'born', born)
end
if born then knew_other_data(epoch_key, born, last_born) end
restore_pauses(pause_key, pause_history_key, pauses_restored_key, born or '', last_born, is_empty, remembered, now_ms())
return {born or '', redis.call('HGETALL', pause_key)}

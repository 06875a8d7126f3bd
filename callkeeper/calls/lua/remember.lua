-- Return the pauses to a process that does not claim, and restore those that it saw last.
-- KEYS: pause, pause_history, pauses_restored, epoch
-- ARGV: clock, new_name, last_born, last_lived, remembered
-- The data in Redis gets `new_name` if it has none. `last_born` is its name when the process looked last, '' for never;
-- `remembered` the pauses that it saw then, '' for none, else JSON, `last_lived` as in claim.lua: see
-- `callkeeper.calls.store.pausing.PauseMemory`.
-- Returns {name of the data, pauses, lived}, or {} if the data is older and no worker has seen that: its claim gives the
-- data a new name, and until then the process must not forget what it saw.
local known = redis.call('HMGET', epoch_key, 'id', 'born', 'before', 'lived')
local born, lived = known[2], num(known[4], 0)
local is_claimed = known[1] == epoch()
local is_empty = not known[1] or (is_claimed and (known[3] or '') == '')
local is_older = known[1] and is_older_data(lived, last_lived)
if is_older and (last_born == born or not is_claimed) then return {} end
if not known[1] and not born then
    born = new_name
    redis.call('HSET', epoch_key, 'born', born)
end
if born then knew_other_data(epoch_key, born, last_born) end
if is_older then
    lived = tonumber(last_lived)
    redis.call('HSET', epoch_key, 'lived', lived)
end
is_older, born = is_older and not is_empty, born or ''
restore_pauses(pause_key, pause_history_key, pauses_restored_key, born, last_born, is_empty, is_older, remembered, now_ms())
return {born, redis.call('HGETALL', pause_key), lived}

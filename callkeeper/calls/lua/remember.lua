-- Return the pauses to a process that does not claim, and restore those that it saw last.
-- PARTS: replaced_redis
-- KEYS: pause, pause_history, pauses_restored, epoch
-- ARGV: clock, new_name, last_born, last_claimed_ms, remembered
-- The data in Redis gets `new_name` if it has none. `last_born` is its name when the process looked last, '' for
-- never; `remembered` the pauses that it saw then, '' for none, else JSON, `last_claimed_ms` as in claim.lua: see
-- `callkeeper.calls.store.pausing.PauseMemory`.
-- Returns {name of the data, pauses, claimed_ms}, or {} if the data is older and no worker has seen that: its claim
-- gives the data a new name, and until then the process must not forget what it saw.
local known = redis.call('HMGET', epoch_key, 'id', 'born', 'before', 'claimed_ms')
local born, claimed_ms = known[2], num(known[4], 0)
local is_claimed = known[1] == epoch()
local is_empty = not known[1] or (is_claimed and (known[3] or '') == '')
local is_older = known[1] and is_older_data(claimed_ms, last_claimed_ms)
if is_older and (last_born == born or not is_claimed) then return {} end
if not known[1] and not born then
    born = new_name
    redis.call('HSET', epoch_key, 'born', born)
end
if born then knew_other_data(epoch_key, born, last_born) end
if is_older then
    claimed_ms = tonumber(last_claimed_ms)
    redis.call('HSET', epoch_key, 'claimed_ms', claimed_ms)
end
born = born or ''
restore_pauses(pause_key, pause_history_key, pauses_restored_key, born, last_born, is_empty, is_older, remembered, now_ms())
return {born, redis.call('HGETALL', pause_key), claimed_ms}

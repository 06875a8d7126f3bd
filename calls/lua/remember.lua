-- Return the pauses to a process that does not claim, and restore those that it saw last.
-- KEYS: pauses, their history, restored pauses, epoch
-- ARGV: now, a new name for the data, its name when the process looked last ('' for never), the pauses it saw then ('' for
--       none, else JSON: see `calls.store.pausing.PauseMemory`)
-- Returns {name of the data, pauses}.
local is_empty = redis.call('HEXISTS', KEYS[4], 'id') == 0
local born = redis.call('HGET', KEYS[4], 'born')
if is_empty and not born then
    born = ARGV[2]
    redis.call('HSET', KEYS[4], 'born', born)
end
if born then knew_other_data(KEYS[4], born, ARGV[3]) end
restore_pauses(KEYS[1], KEYS[2], KEYS[3], born or '', ARGV[3], is_empty, ARGV[4], now_ms())
return {born or '', redis.call('HGETALL', KEYS[1])}

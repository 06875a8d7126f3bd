-- Pause a place, or lift its pause, and add that to the history.
-- KEYS: pause, pause_history
-- ARGV: clock, place, pause_then, line, lines_kept
-- `pause_then` is '' to lift the pause. `line` is added to the history.
-- Returns 1, or 0 if there was no pause to lift. A line that is already in the history is a repetition and changes
-- nothing, because otherwise a pause that was lifted since would come back.
if redis.call('LPOS', pause_history_key, line) then return 1 end
redis.call('LPUSH', pause_history_key, line)
redis.call('LTRIM', pause_history_key, 0, tonumber(lines_kept) - 1)
if pause_then == '' then return redis.call('HDEL', pause_key, place) end
redis.call('HSET', pause_key, place, pause_then)
return 1

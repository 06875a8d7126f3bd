-- Pause a place, or lift its pause, and add that to the history.
-- KEYS: pauses, their history
-- ARGV: now, place, pause ('' to lift it), line for the history, lines the history holds
-- Returns 1, or 0 if there was no pause to lift. A line that is already in the history is a repetition and changes
-- nothing, because otherwise a pause that was lifted since would come back.
if redis.call('LPOS', KEYS[2], ARGV[4]) then return 1 end
redis.call('LPUSH', KEYS[2], ARGV[4])
redis.call('LTRIM', KEYS[2], 0, tonumber(ARGV[5]) - 1)
if ARGV[3] == '' then return redis.call('HDEL', KEYS[1], ARGV[2]) end
redis.call('HSET', KEYS[1], ARGV[2], ARGV[3])
return 1

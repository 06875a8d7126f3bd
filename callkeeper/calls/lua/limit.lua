-- Check how many failed logins some names have left, and count one for each. The first name that has none left ends the
-- script, so those after it are not counted. A repetition counts one more, which errs on the safe side.
-- KEYS: logins
-- ARGV: clock, every_ms, remembered, counts, rest...
-- `logins` is a sorted set of name -> the time in ms at which its failures are forgotten; one is after `every_ms`. At most
-- `remembered` names are kept. `counts` is 1 to count a failure, 0 to check only. `rest` are (name, failures allowed)
-- pairs.
-- Returns the ms to wait (0 if the limit had not been reached), and the ms to wait for the next one.
local now, every, most, counts = now_ms(), tonumber(every_ms), tonumber(remembered), counts == '1'
local next_wait = 0
for n = rest, #ARGV, 2 do
  local name, limit = ARGV[n], (tonumber(ARGV[n + 1]) - 1) * every
  local function store(instant) redis.call('ZADD', logins_key, instant, name) end
  local left = math.max(0, bounded(redis.call('ZSCORE', logins_key, name), now, limit + every, store) - now)
  if left > limit then return {left - limit, left - limit} end
  if counts then
    left = left + every
    redis.call('ZREMRANGEBYSCORE', logins_key, '-inf', now)
    store(now + left)
    local too_many = redis.call('ZCARD', logins_key) - most
    if too_many > 0 then redis.call('ZPOPMIN', logins_key, too_many) end
    if redis.call('PTTL', logins_key) < left then redis.call('PEXPIRE', logins_key, left) end
    next_wait = math.max(next_wait, left - limit)
  end
end
return {0, next_wait}

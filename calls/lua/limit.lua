-- Check how many failed logins some names have left, and count one for each. The first name that has none left ends the
-- script, so those after it are not counted. A repetition counts one more, which errs on the safe side.
-- KEYS: failed logins, a sorted set of name -> the time in ms at which its failures are forgotten
-- ARGV: now, ms until one is forgotten, names remembered, 1 to count a failure or 0 to check only, then for each name:
--       name, failures allowed
-- Returns the ms to wait (0 if the limit had not been reached), and the ms to wait for the next one.
local now, every, most, counts = now_ms(), tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4] == '1'
local next_wait = 0
for n = 5, #ARGV, 2 do
  local name, limit = ARGV[n], (tonumber(ARGV[n + 1]) - 1) * every
  local function store(instant) redis.call('ZADD', KEYS[1], instant, name) end
  local left = math.max(0, bounded(redis.call('ZSCORE', KEYS[1], name), now, limit + every, store) - now)
  if left > limit then return {left - limit, left - limit} end
  if counts then
    left = left + every
    redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
    store(now + left)
    local too_many = redis.call('ZCARD', KEYS[1]) - most
    if too_many > 0 then redis.call('ZPOPMIN', KEYS[1], too_many) end
    if redis.call('PTTL', KEYS[1]) < left then redis.call('PEXPIRE', KEYS[1], left) end
    next_wait = math.max(next_wait, left - limit)
  end
end
return {0, next_wait}

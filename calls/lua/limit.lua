-- Check how many failed logins a name has left, and count one. A repetition counts one more, which errs on the safe
-- side.
-- KEYS: failed logins, a sorted set of name -> the time in ms at which its failures are forgotten
-- ARGV: now, name, failures allowed, ms until one is forgotten, names remembered, 1 to count a failure or 0 to check
--       only
-- Returns the ms to wait; 0 if the limit had not been reached.
local now, name, every = now_ms(), ARGV[2], tonumber(ARGV[4])
local left = math.max(0, (tonumber(redis.call('ZSCORE', KEYS[1], name) or 0)) - now)
local wait = math.max(0, left - (tonumber(ARGV[3]) - 1) * every)
if wait > 0 or ARGV[6] == '0' then return wait end
left = left + every
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('ZADD', KEYS[1], now + left, name)
local too_many = redis.call('ZCARD', KEYS[1]) - tonumber(ARGV[5])
if too_many > 0 then redis.call('ZPOPMIN', KEYS[1], too_many) end
if redis.call('PTTL', KEYS[1]) < left then redis.call('PEXPIRE', KEYS[1], left) end
return 0

-- Have everything retried at once that waits: open breakers, and logins that were refused.
-- KEYS: breakers, login gate, wakeup
-- ARGV: now
-- Returns the breakers.
local now = now_ms()
for scope, b in pairs(breakers(KEYS[1])) do
    if is_open(b) then
        b.wait = now
        set_breaker(KEYS[1], scope, b)
    end
end
for _, field in ipairs(redis.call('HKEYS', KEYS[2])) do
    if field == 'shut' or string.sub(field, 1, 8) == 'refused:' then redis.call('HDEL', KEYS[2], field) end
end
if redis.call('LLEN', KEYS[3]) == 0 then redis.call('RPUSH', KEYS[3], '1') end
return redis.call('HGETALL', KEYS[1])

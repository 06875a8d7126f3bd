-- Have everything retried at once that waits: open breakers, and logins that were refused.
-- KEYS: breakers of account and institutions, breakers of kinds of endpoints, login gate, wakeup
-- ARGV: now
-- Returns both kinds of breakers.
local now = now_ms()
for n = 1, 2 do
    for scope, b in pairs(breakers(KEYS[n])) do
        if is_open(b) then
            b.wait = now
            set_breaker(KEYS[n], scope, b)
        end
    end
end
for _, field in ipairs(redis.call('HKEYS', KEYS[3])) do
    if field == 'shut' or string.sub(field, 1, 8) == 'refused:' then redis.call('HDEL', KEYS[3], field) end
end
if redis.call('LLEN', KEYS[4]) == 0 then redis.call('RPUSH', KEYS[4], '1') end
return {redis.call('HGETALL', KEYS[1]), redis.call('HGETALL', KEYS[2])}

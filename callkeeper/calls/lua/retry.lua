-- Have everything retried at once that waits: open breakers, and logins that were refused.
-- PARTS: breakers
-- KEYS: breakers, endpoints, login_gate, wakeup
-- ARGV: clock
-- Returns both kinds of breakers.
local now = now_ms()
for _, key in ipairs({breakers_key, endpoints_key}) do
    for scope, b in pairs(breakers(key)) do
        if is_open(b) then
            b.wait = now
            set_breaker(key, scope, b)
        end
    end
end
for _, field in ipairs(redis.call('HKEYS', login_gate_key)) do
    if field == 'shut' or string.sub(field, 1, 8) == 'refused:' then redis.call('HDEL', login_gate_key, field) end
end
if redis.call('LLEN', wakeup_key) == 0 then redis.call('RPUSH', wakeup_key, '1') end
return {redis.call('HGETALL', breakers_key), redis.call('HGETALL', endpoints_key)}

-- Note how a request to the service went, for all workers: failures in a row shut the gate, the first success opens it.
-- KEYS: service, last claim of the reporter (its reports are numbered there too)
-- ARGV: now, number of the report, 'ok' | 'failed', pause the service asked for in ms ('' for none), jitter 0..1,
--       failures that shut the gate, seconds the number is kept
-- Returns {1 if this report changed whether the gate is shut, ms it stays shut, failures in a row, now}. A report with a
-- number that is not above the reporter's last changes nothing.
local now = now_ms()
local gate = redis.call('HMGET', KEYS[1], 'until', 'failures', 'open')
local left = math.max(0, num(gate[1], 0) - now)
if tonumber(ARGV[2]) <= tonumber(redis.call('HGET', KEYS[2], 'report') or '0') then
    return {0, left, num(gate[2], 0), now}
end
redis.call('HSET', KEYS[2], 'report', ARGV[2])
redis.call('EXPIRE', KEYS[2], ARGV[7])
if ARGV[3] == 'ok' then
    redis.call('DEL', KEYS[1])
    return {gate[3] and 1 or 0, 0, 0, now}
end
local failures = num(gate[2], 0)
-- What was under way when the gate shut fails too: that is no news.
if left > 0 and ARGV[4] == '' then return {0, left, failures, now} end
failures = failures + 1
local limit = tonumber(ARGV[6])
local over = failures - limit
local pause = 0
if ARGV[4] ~= '' then
    pause = math.min(60000, tonumber(ARGV[4])) * (1 + 0.2 * tonumber(ARGV[5]))
elseif over >= 0 then
    pause = math.min(30000, 1000 * 2 ^ math.min(over, 5)) * (0.5 + 0.5 * tonumber(ARGV[5]))
end
pause = math.max(left, math.floor(pause))
if pause > 0 then
    failures = math.max(failures, limit)
    redis.call('HSETNX', KEYS[1], 'open', now) -- since when
    redis.call('HDEL', KEYS[1], 'probe')
end
redis.call('HSET', KEYS[1], 'failures', failures, 'until', now + pause)
redis.call('EXPIRE', KEYS[1], 600)
return {(pause > 0 and not gate[3]) and 1 or 0, pause, failures, now}

-- Add a process's figures to the totals, and record that it is alive. A repetition adds nothing, however late.
-- KEYS: totals, processes, this process, what it did last, when each thing was counted last, rows and last words,
--       processes that have not said goodbye
-- ARGV: now, prefix of the minutes, number of the batch, process, its kind, its memory in bytes, seconds a minute is kept,
--       seconds the totals are kept unwritten, seconds a silent process counts as alive, seconds a number is kept,
--       its version, digest of its rules, its own clock in ms, the share of a core that it uses, seconds a process that
--       vanished is remembered, '1' if this is its goodbye, (field, increment) ... Rows have '+' in front of their field, or
--       '-' if they ended, words '='.
-- Returns 1, or 0 for a repetition.
local now = now_ms()
local running = ARGV[5] .. ' ' .. ARGV[4]
if ARGV[16] == '1' then
    redis.call('ZREM', KEYS[2], ARGV[4])
    redis.call('ZREM', KEYS[7], running)
    redis.call('DEL', KEYS[3])
end
if tonumber(ARGV[3]) <= tonumber(redis.call('HGET', KEYS[4], 'batch') or '0') then return 0 end
redis.call('HSET', KEYS[4], 'batch', ARGV[3])
redis.call('EXPIRE', KEYS[4], ARGV[10])
local alive_ms = tonumber(ARGV[9]) * 1000
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now - alive_ms)
redis.call('ZREMRANGEBYSCORE', KEYS[7], '-inf', now - ARGV[15] * 1000)
if ARGV[16] ~= '1' then
    redis.call('HSET', KEYS[3], 'kind', ARGV[5], 'memory', ARGV[6], 'at', now, 'version', ARGV[11], 'rules', ARGV[12],
        'ahead', ARGV[13] - now, 'cpu', ARGV[14])
    redis.call('HSETNX', KEYS[3], 'since', now)
    redis.call('PEXPIRE', KEYS[3], alive_ms)
    redis.call('ZADD', KEYS[2], now, ARGV[4])
    redis.call('ZADD', KEYS[7], now, running)
    redis.call('EXPIRE', KEYS[7], ARGV[15])
end
if #ARGV < 17 then return 1 end
local minute = ARGV[2] .. string.format('%d', math.floor(now / 60000))
for n = 17, #ARGV, 2 do
    local sign, field = string.match(ARGV[n], '^([-+=])(.*)$')
    if sign == '+' then
        redis.call('HINCRBY', KEYS[6], field, ARGV[n + 1])
    elseif sign == '-' then
        redis.call('HDEL', KEYS[6], field)
    elseif sign == '=' then
        redis.call('HSET', KEYS[6], field .. '=', ARGV[n + 1])
    else
        redis.call('HINCRBY', KEYS[1], ARGV[n], ARGV[n + 1])
        redis.call('HINCRBY', minute, ARGV[n], ARGV[n + 1])
        redis.call('HSET', KEYS[5], ARGV[n], now)
    end
end
redis.call('EXPIRE', KEYS[1], ARGV[8])
redis.call('EXPIRE', minute, ARGV[7])
redis.call('EXPIRE', KEYS[5], ARGV[7])
redis.call('EXPIRE', KEYS[6], ARGV[8])
return 1

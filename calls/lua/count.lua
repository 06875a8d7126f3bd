-- Add a process's figures to the totals, and record that it is alive. A repetition adds nothing, however late.
-- KEYS: figures, processes, process, claimer, counted
-- ARGV: clock, minute, number, name, kind, memory, minute_kept_s, kept_s, alive_s, number_kept_s, version, rules, own_ms,
--       cpu, rest...
-- `claimer` has the number of the process's last batch, `counted` when each thing was counted last. `minute` is the
-- prefix of the minutes' keys, `number` that of the batch. The totals are kept for `kept_s` after the last write. `rules`
-- is a digest, `own_ms` the process's own clock, `cpu` its share of a core, `rest` are (field, increment) pairs.
-- Returns 1, or 0 for a repetition.
local now = now_ms()
if tonumber(number) <= tonumber(redis.call('HGET', claimer_key, 'batch') or '0') then return 0 end
redis.call('HSET', claimer_key, 'batch', number)
redis.call('EXPIRE', claimer_key, number_kept_s)
local alive_ms = tonumber(alive_s) * 1000
redis.call('HSET', process_key, 'kind', kind, 'memory', memory, 'at', now, 'version', version, 'rules', rules,
    'ahead', own_ms - now, 'cpu', cpu)
redis.call('HSETNX', process_key, 'since', now)
redis.call('PEXPIRE', process_key, alive_ms)
redis.call('ZADD', processes_key, now, name)
redis.call('ZREMRANGEBYSCORE', processes_key, '-inf', now - alive_ms)
if #ARGV < rest then return 1 end
local minute = minute .. string.format('%d', math.floor(now / 60000))
for n = rest, #ARGV, 2 do
    redis.call('HINCRBY', figures_key, ARGV[n], ARGV[n + 1])
    redis.call('HINCRBY', minute, ARGV[n], ARGV[n + 1])
    redis.call('HSET', counted_key, ARGV[n], now)
end
redis.call('EXPIRE', figures_key, kept_s)
redis.call('EXPIRE', minute, minute_kept_s)
redis.call('EXPIRE', counted_key, minute_kept_s)
return 1

-- Record one push event: the event log, a note on its call, a look at its institution's queue, a wake-up.
-- KEYS: due, events, wake marker, RQ queue, RQ workers, alias of the alternate id, last sample, bell, attended
-- ARGV: now, prefix, event (json), call member ('' to leave no note), voice id for the alias ('' for none), alternate member
--       ('' unless the alias may lead from it), institution member, note id, note, is sample ('1' or ''), events kept (count),
--       and for how many seconds
-- Returns {1 if the caller has to enqueue a job else 0}.
local now = now_ms()
local prefix, event, member, alias_of, inst = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[7]
redis.call('ZADD', KEYS[2], now, event)
redis.call('ZREMRANGEBYRANK', KEYS[2], 0, -(tonumber(ARGV[11]) + 1))
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now - 1000 * tonumber(ARGV[12]))
if ARGV[10] == '1' then redis.call('SET', KEYS[7], now, 'EX', 604800) end
if member == '' then return {0} end
if alias_of ~= '' then redis.call('SET', KEYS[6], alias_of, 'EX', 86400) end
if ARGV[6] == '1' then
    local known = redis.call('GET', KEYS[6])
    if known then member = inst:gsub('^i:', 'c:', 1) .. ':' .. known end
end
leave_note(prefix, KEYS[1], member, ARGV[8], ARGV[9], now, false)
leave_note(prefix, KEYS[1], inst, 'look', string.format('"%d"', now), now, true)
return {call_somebody(KEYS[3], KEYS[4], KEYS[5], KEYS[8], KEYS[9])}

-- Become or stay the leader, the one process that does something for all. A repetition changes nothing.
-- KEYS: alert_leader
-- ARGV: process, leads_ms, wanted
-- `wanted` is 1 to lead, 0 to step down.
-- Returns 1 if the asking process leads now.
local leader = redis.call('GET', alert_leader_key)
-- The end of a key's life is an instant too.
bounded(redis.call('PTTL', alert_leader_key), 0, tonumber(leads_ms), function(ms) redis.call('PEXPIRE', alert_leader_key, ms) end)
if leader and leader ~= process then return 0 end
if wanted == '0' then
    redis.call('DEL', alert_leader_key)
    return 0
end
redis.call('SET', alert_leader_key, process, 'PX', leads_ms)
return 1

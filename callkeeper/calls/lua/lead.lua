-- Become or stay the leader, the one process that does something for all. A repetition changes nothing.
-- KEYS: leader
-- ARGV: process, leads_ms, wanted
-- `wanted` is 1 to lead, 0 to step down.
-- Returns 1 if the asking process leads now.
local current = redis.call('GET', leader_key)
-- The end of a key's life is an instant too.
bounded(redis.call('PTTL', leader_key), 0, tonumber(leads_ms), function(ms) redis.call('PEXPIRE', leader_key, ms) end)
if current and current ~= process then return 0 end
if wanted == '0' then
    redis.call('DEL', leader_key)
    return 0
end
redis.call('SET', leader_key, process, 'PX', leads_ms)
return 1

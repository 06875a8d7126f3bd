-- The pacemaker's look: is anything due that nobody was woken for?
-- KEYS: due, wake marker, RQ queue, RQ workers, service
-- ARGV: now, how late in ms something has to be (a shift under way claims what is due within 20 ms); below 0 how soon
--       it is due, which is no reason for a job if one waits already
-- Returns {1 if the caller has to enqueue a job, how late the longest-waiting member is in ms}.
local now = now_ms()
local gate = redis.call('HMGET', KEYS[5], 'until', 'probe')
if now < math.max(tonumber(gate[1] or '0'), tonumber(gate[2] or '0')) then return {0, 0} end
if tonumber(ARGV[2]) < 0 and redis.call('LLEN', KEYS[3]) > 0 then return {0, 0} end
local first = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now - tonumber(ARGV[2]), 'WITHSCORES', 'LIMIT', 0, 1)
if not first[1] then return {0, 0} end
return {win_wake(KEYS[2], KEYS[3], KEYS[4]), now - math.floor(tonumber(first[2]))}

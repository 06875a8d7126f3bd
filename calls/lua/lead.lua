-- Become or stay the leader, the one process that does something for all. A repetition changes nothing.
-- KEYS: the leader
-- ARGV: the asking process, how many ms it leads, 1 to lead or 0 to step down
-- Returns 1 if the asking process leads now.
local leader = redis.call('GET', KEYS[1])
-- The end of a key's life is an instant too.
bounded(redis.call('PTTL', KEYS[1]), 0, tonumber(ARGV[2]), function(ms) redis.call('PEXPIRE', KEYS[1], ms) end)
if leader and leader ~= ARGV[1] then return 0 end
if ARGV[3] == '0' then
    redis.call('DEL', KEYS[1])
    return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1

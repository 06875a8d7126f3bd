-- Remove expired members from the list of what needs a person.
-- KEYS: attention
-- ARGV: now, prefix
-- Returns how many were removed.
local gone = 0
for _, member in ipairs(redis.call('HKEYS', KEYS[1])) do
    if redis.call('EXISTS', ARGV[2] .. ':item:' .. member) == 0 then
        gone = gone + redis.call('HDEL', KEYS[1], member)
    end
end
return gone

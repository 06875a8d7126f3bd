-- Forget that scope ARGV[2] was refused. The other barred scopes of its institution ARGV[3] may be tried at once.
-- Returns 1 if the scope was barred.
if is_repetition('token_clear ' .. ARGV[2]) then return 0 end
local now = now_ms()
local known = refusal(redis.call('HGET', REFUSED, ARGV[2]))
redis.call('HDEL', REFUSED, ARGV[2])
if not known or known.till == 0 then return 0 end
local all = redis.call('HGETALL', REFUSED)
for n = 1, #all, 2 do
    local other = refusal(all[n + 1])
    if other and other.till > now and string.match(all[n], '^%S+ (.*)$') == ARGV[3] then
        other.till = now
        set_refusal(all[n], other)
    end
end
return 1

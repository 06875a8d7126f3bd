-- Forget that scope ARGV[2] was refused. The other barred scopes of its institution ARGV[3] may be tried at once.
-- Returns 1 if the scope was barred.
if is_repetition('token_clear ' .. ARGV[2]) then return 0 end
local now = now_ms()
local known = refusal(ARGV[2], now)
redis.call('HDEL', REFUSED, ARGV[2])
if not known or known.till == 0 then return 0 end
for _, each in ipairs(refusals(now)) do
    if each[4].till > now and each[3] == ARGV[3] then
        each[4].till = now
        set_refusal(each[1], each[4])
    end
end
return 1

-- Forget that a scope was refused. The other barred scopes of its institution may be tried at once.
-- PARTS: token
-- ARGV: clock, scope, institution, number
-- Returns 1 if the scope was barred.
if is_repetition('token_clear ' .. scope) then return 0 end
local now = now_ms()
local known = refusal(scope, now)
redis.call('HDEL', refused_key, scope)
if not known or known.till == 0 then return 0 end
for _, each in ipairs(refusals(now)) do
    if each[4].till > now and each[3] == institution then
        each[4].till = now
        set_refusal(each[1], each[4])
    end
end
return 1

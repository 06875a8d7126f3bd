-- Take the turn to make a check for an institution whose checks bring no result: one call at a time.
-- PARTS: breakers
-- KEYS: endpoints
-- ARGV: clock, institution, every_ms
-- `institution` is as in members; `every_ms` lies between two such checks.
-- Returns 0 if the check may be made, else after how many ms to ask again. A repetition waits for the next turn.
local now, every, scope = now_ms(), tonumber(every_ms), 'check ' .. institution
local b = breakers(endpoints_key)[scope]
if not is_open(b) then return 0 end
local wait = math.max(0, b.wait - now)
if wait == 0 or wait > every then -- longer only if Redis's clock was set back
    b.wait = now + every
    set_breaker(endpoints_key, scope, b)
end
return math.min(wait, every)

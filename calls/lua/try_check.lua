-- Take the turn to make a check for an institution whose checks bring no result: one call at a time.
-- KEYS: breakers of kinds of endpoints
-- ARGV: now, institution as in members, ms between two such checks
-- Returns 0 if the check may be made, else after how many ms to ask again. A repetition waits for the next turn.
local now, every, scope = now_ms(), tonumber(ARGV[3]), 'check ' .. ARGV[2]
local b = breakers(KEYS[1])[scope]
if not is_open(b) then return 0 end
local wait = math.max(0, b.wait - now)
if wait == 0 or wait > every then -- longer only if Redis's clock was set back
    b.wait = now + every
    set_breaker(KEYS[1], scope, b)
end
return math.min(wait, every)

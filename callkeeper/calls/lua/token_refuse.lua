-- Record that a request with a token got 401.
-- PARTS: token
-- ARGV: clock, generation, scope, within_ms, wait_ms, alive_ms, institution, number
-- Two tokens have to be refused `within_ms` to bar the scope; it is then not tried for `wait_ms`. A token that was accepted
-- in the last `alive_ms` counts as alive. If the institution is already known to be refused, another of its scopes is
-- barred at once.
-- Returns {is current, is proven, ms for which the scope is barred (-1: it is not), is newly barred}.
local now = now_ms()
local token = load_token(now)
if not is_current(token, generation) then return {0, 0, -1, 0} end
local proven = is_proven(token) and 1 or 0
local known = refusal(scope, now)
local is_barred = known and known.till > 0
if is_repetition('token_refuse ' .. scope) then
    return {1, proven, is_barred and math.max(0, known.till - now) or -1, 0}
end
if is_barred then
    -- A token in use is accepted all the time. An unused one may have lapsed, and perhaps only this scope shows it.
    local accepted = tonumber(redis.call('HGET', token_key, 'expires')) - TOKEN_TTL_MS
    if now - accepted >= tonumber(alive_ms) then return {1, proven, -1, 0} end
    if now >= known.till then
        known.till = next_try(known, now, tonumber(wait_ms))
        set_refusal(scope, known)
    end
    return {1, proven, known.till - now, 0}
end
local refused_before = known and known.generation ~= generation and now - known.at < tonumber(within_ms)
if refused_before or is_refused(institution, now, tonumber(within_ms)) then
    known = {generation = generation, at = now, till = now + tonumber(wait_ms), since = now}
    set_refusal(scope, known)
    return {1, proven, known.till - now, 1}
end
if not known or known.generation ~= generation then
    set_refusal(scope, {generation = generation, at = now, till = 0, since = 0})
end
return {1, proven, -1, 0}

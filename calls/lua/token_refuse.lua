-- Record that a request with token generation ARGV[2] for scope ARGV[3] got 401.
-- ARGV[4..6] in ms: within what time two tokens have to be refused to bar the scope, how long it is then not tried, how
-- recently the token must have been accepted to count as alive.
-- ARGV[7]: the institution. If it is already known to be refused, another of its scopes is barred at once.
-- Returns {is current, is proven, ms for which the scope is barred (-1: it is not), is newly barred}.
local now = now_ms()
local token = load_token(now)
if not is_current(token, ARGV[2]) then return {0, 0, -1, 0} end
local proven = is_proven(token) and 1 or 0
local known = refusal(ARGV[3], now)
local is_barred = known and known.till > 0
if is_repetition('token_refuse ' .. ARGV[3]) then
    return {1, proven, is_barred and math.max(0, known.till - now) or -1, 0}
end
if is_barred then
    -- A token in use is accepted all the time. An unused one may have lapsed, and perhaps only this scope shows it.
    local accepted = tonumber(redis.call('HGET', TOKEN, 'expires')) - TOKEN_TTL_MS
    if now - accepted >= tonumber(ARGV[6]) then return {1, proven, -1, 0} end
    if now >= known.till then
        known.till = next_try(known, now, tonumber(ARGV[5]))
        set_refusal(ARGV[3], known)
    end
    return {1, proven, known.till - now, 0}
end
local refused_before = known and known.generation ~= ARGV[2] and now - known.at < tonumber(ARGV[4])
if refused_before or is_refused(ARGV[7], now, tonumber(ARGV[4])) then
    known = {generation = ARGV[2], at = now, till = now + tonumber(ARGV[5]), since = now}
    set_refusal(ARGV[3], known)
    return {1, proven, known.till - now, 1}
end
if not known or known.generation ~= ARGV[2] then
    set_refusal(ARGV[3], {generation = ARGV[2], at = now, till = 0, since = 0})
end
return {1, proven, -1, 0}

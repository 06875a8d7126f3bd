-- Lower a rate, because the service answered that it gets too many requests.
-- PARTS: request_budget
-- ARGV: clock, sign, scope, set_rate, answered_per_s, acted_for
-- `sign` is 'busy' for a 429, 'own' for one of an institution's own limit, 'strained' for 503 answers. `set_rate` is the
-- configured rate or 0, `answered_per_s` what the reporter was answered lately, `acted_for` the number of institutions.
-- Returns the scopes that are known. A repetition lowers once more, which errs on the safe side.
local LOWERED = 0.85 -- the factor by which a 429 lowers the learned rate, at most once a second
local FIRST, LEAST = 10, 4 -- the least rate after the very first 429, and after the others
local WATCHED = 4000 -- ms between the first sign of load and the first lowering; requests are only counted meanwhile
local ENOUGH = 0.6 -- the share of what was sent before that stays in any case: effects, checks and listings need it

-- For a second after the rate was lowered, 429s are ignored: most belong to requests that were already in flight.
local function lower(s, answered)
    go_on(s)
    local r = rate(s)
    if s.learned > 0 and now - s.lowered < 1000 then return end
    if r == 0 then
        s.learned, s.kind, s.granted = math.max(FIRST, answered), STARTING, 0
        for n = 1, window(s.learned) do s.log[n] = now end
    else
        s.learned, s.kind = math.max(LEAST, LOWERED * r), LIMITED
    end
    s.lowered = now
end

-- Lower the rate because of the service's load. The first sign only begins the counting of requests, so that it is known
-- how many are sent. A rate that was set is known to be right.
local function ease(s)
    go_on(s)
    local age, sent = now - s.lowered, s.granted / MEMORY * 1000
    if s.set > 0 then return end
    if s.kind ~= LOADED and s.learned > 0 then return lower(s, 0) end
    if s.kind ~= LOADED then
        s.kind, s.lowered = LOADED, now
    elseif age >= (s.learned == 0 and WATCHED or 1000) then
        local found = s.learned == 0 and sent or math.min(sent, s.learned)
        s.least = math.max(FIRST, s.least, ENOUGH * found)
        s.learned, s.lowered = math.max(s.least, LOWERED * found), now
    end
end

-- If three institutions, or all, are lowered within five seconds of each other, the limit is the account's.
local function common(is_load)
    local found = {}
    for _, scope in ipairs(redis.call('HKEYS', budget_key)) do
        local s = load(scope)
        local is_such = is_load and s.kind == LOADED or not is_load and s.kind ~= LOADED and s.learned > 0
        if scope ~= '' and is_such and now - s.lowered < 5000 then found[#found + 1] = s end
    end
    return #found >= math.min(3, math.max(2, tonumber(acted_for))) and found or {}
end

local is_load, is_own = sign == 'strained', sign == 'own'
local set, answered = tonumber(set_rate), tonumber(answered_per_s)
local function note(s, answers)
    if is_load then ease(s) else lower(s, answers) end
    store(s)
end
local account = load('')
local is_known = account.learned > 0 or account.set > 0 or is_load and account.kind == LOADED
local s = scope ~= '' and (is_own or not is_known) and load(scope) or account
if s.scope == scope then s.set = set end
note(s, answered)
if s ~= account and not is_own then
    -- From then on the account has a rate, and the rates learned for single institutions are forgotten.
    local most, found = 0, common(is_load)
    for _, other in ipairs(found) do
        most = math.max(most, other.learned)
        redis.call('HDEL', budget_key, other.scope)
    end
    if #found > 0 then note(account, most) end
end
return redis.call('HKEYS', budget_key)

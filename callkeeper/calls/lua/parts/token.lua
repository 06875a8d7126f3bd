-- The service's token, who may log in, and which operations get 401.
-- KEYS: token, login_gate, claimer, refused
-- `claimer` has the caller's last calls: `number`, the last argument, numbers the calls of one process, so that a
-- repetition is recognised, however late.
-- `callkeeper.calls.store.sso_token` puts TOKEN_TTL_MS, PROBE_EVERY_MS, LONGEST_SHUT_MS and LONGEST_REFUSED_MS in front.
-- Token: generation, value, institutions (JSON), issued, expires, proven. Gate: nonce, lease, failures, shut, reason,
-- refused:<credentials>. Refusals: scope -> 'generation at until since'; until and since are 0 as long as the scope is
-- not barred.
local GATE_TTL_MS = 86400000

-- Tell whether this call of a script, or a later one of the same process, was already carried out.
local function is_repetition(script)
    if tonumber(number) <= num(redis.call('HGET', claimer_key, script), 0) then return true end
    redis.call('HSET', claimer_key, script, number)
    redis.call('PEXPIRE', claimer_key, GATE_TTL_MS)
    return false
end

local function set_refusal(scope, r)
    redis.call('HSET', refused_key, scope, string.format('%s %.0f %.0f %.0f', r.generation, r.at, r.till, r.since))
    redis.call('PEXPIRE', refused_key, GATE_TTL_MS)
end

-- Read the refusal of a scope, or nil.
local function refusal(scope, now)
    local text = redis.call('HGET', refused_key, scope)
    local generation, at, till, since = string.match(text or '', '^(%S+) (%d+) (%d+) (%d+)$')
    if not generation then return nil end
    local r = {generation = generation}
    local function store(field)
        return function(instant)
            r[field] = instant
            set_refusal(scope, r)
        end
    end
    r.at, r.till, r.since = tonumber(at), tonumber(till), tonumber(since)
    bounded(at, now, 0, store('at'))
    bounded(since, now, 0, store('since'))
    bounded(till, now, PROBE_EVERY_MS, store('till'))
    return r
end

-- Return all refusals: {scope, operation, institution, refusal}.
local function refusals(now)
    local found = {}
    for _, scope in ipairs(redis.call('HKEYS', refused_key)) do
        local operation, institution = string.match(scope, '^(%S+) (.*)$')
        local r = refusal(scope, now)
        if r then found[#found + 1] = {scope, operation, institution, r} end
    end
    return found
end

-- When a barred scope is tried again: see probe_wait_s in callkeeper/service/tokens.py.
local function next_try(r, now, first)
    return now + math.max(first, math.min(PROBE_EVERY_MS, now - r.since))
end

-- Return the barred scopes and the ms until each may be tried, in turn.
local function barred(now)
    local found = {}
    for _, each in ipairs(refusals(now)) do
        if each[4].till > 0 then
            found[#found + 1] = each[1]
            found[#found + 1] = math.max(0, each[4].till - now)
        end
    end
    return found
end

-- Tell whether an institution is refused: it may not read, or another of its operations was barred a moment ago.
local function is_refused(institution, now, moment)
    if institution == '' then return false end
    for _, each in ipairs(refusals(now)) do
        local operation, owner, r = each[2], each[3], each[4]
        if owner == institution and r.till > 0 then
            if operation == 'queue' or operation == 'details' or now - r.since < moment then return true end
        end
    end
    return false
end

local function expire_at(instant, now)
    redis.call('HSET', token_key, 'expires', instant)
    redis.call('PEXPIRE', token_key, instant - now)
end

-- Return the token as a reply; nil if it is missing, expired or unreadable.
local function load_token(now)
    local t = redis.call('HMGET', token_key, 'generation', 'value', 'institutions', 'issued', 'proven', 'expires')
    if not t[1] or not t[2] or not num(t[4], nil) or now >= num(t[6], 0) then return nil end
    if not pcall(cjson.decode, t[3] or '') then return nil end
    bounded(t[6], now, TOKEN_TTL_MS, function(instant) expire_at(instant, now) end)
    local issued = bounded(t[4], now, 0, function(instant) redis.call('HSET', token_key, 'issued', instant) end)
    return {'token', t[1], t[2], t[3], now - issued, t[5], barred(now)}
end

local function is_current(token, generation)
    return token ~= nil and token[2] == generation
end

local function is_proven(token) return token[6] == '1' end

local function set_gate(...)
    redis.call('HSET', login_gate_key, ...)
    redis.call('PEXPIRE', login_gate_key, GATE_TTL_MS)
end

-- Let a field of the gate hold up logins for so long: 'lease', 'shut' or 'refused:<credentials>'.
local function shut(field, now, wait_ms)
    set_gate(field, now + wait_ms, field .. ':from', now)
end

-- Return until when a field of the gate holds up logins.
local function shut_until(field, now, longest)
    local held = redis.call('HMGET', login_gate_key, field, field .. ':from')
    local meant = math.min(longest, num(held[1], 0) - num(held[2], 0))
    return bounded(held[1], now, meant, function(instant) shut(field, now, instant - now) end)
end

-- End the login. No login may start before the pause is over.
local function end_turn(now, reason, pause_ms)
    redis.call('HDEL', login_gate_key, 'nonce')
    set_gate('reason', reason)
    shut('shut', now, pause_ms)
end

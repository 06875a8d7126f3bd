-- Shared by the token's scripts. It follows prelude.lua.
-- KEYS: the token's hash, the gate's hash, the caller's last calls, the refusals' hash.
-- ARGV[1]: as in prelude.lua. The last of ARGV numbers the calls of one process, so that a repetition is recognised,
-- however late.
-- Token: generation, value, institutions (JSON), issued, expires, proven. Gate: nonce, lease, failures, shut, reason.
-- Refusals: scope -> 'generation at until since'; until and since are 0 as long as the scope is not barred.
local TOKEN, GATE, REFUSED = KEYS[1], KEYS[2], KEYS[4]
local GATE_TTL_MS = 86400000

-- Tell whether this call of a script, or a later one of the same process, was already carried out.
local function is_repetition(script)
    local number = tonumber(ARGV[#ARGV])
    if number <= num(redis.call('HGET', KEYS[3], script), 0) then return true end
    redis.call('HSET', KEYS[3], script, ARGV[#ARGV])
    redis.call('PEXPIRE', KEYS[3], GATE_TTL_MS)
    return false
end

-- Read the refusal of a scope, or nil.
local function refusal(text)
    if not text then return nil end
    local generation, at, till, since = string.match(text, '^(%S+) (%d+) (%d+) (%d+)$')
    if not generation then return nil end
    return {generation = generation, at = tonumber(at), till = tonumber(till), since = tonumber(since)}
end

local function set_refusal(scope, r)
    redis.call('HSET', REFUSED, scope, string.format('%s %.0f %.0f %.0f', r.generation, r.at, r.till, r.since))
    redis.call('PEXPIRE', REFUSED, GATE_TTL_MS)
end

-- When a barred scope is tried again: see probe_wait_s in reseller/tokens.py.
local function next_try(r, now, first, most)
    return now + math.max(first, math.min(most, now - r.since))
end

-- Return the barred scopes and the ms until each may be tried, in turn.
local function barred(now)
    local found, all = {}, redis.call('HGETALL', REFUSED)
    for n = 1, #all, 2 do
        local r = refusal(all[n + 1])
        if r and r.till > 0 then
            found[#found + 1] = all[n]
            found[#found + 1] = math.max(0, r.till - now)
        end
    end
    return found
end

-- Tell whether an institution is refused: it may not read, or another of its operations was barred a moment ago.
local function is_refused(institution, now, moment)
    if institution == '' then return false end
    local all = redis.call('HGETALL', REFUSED)
    for n = 1, #all, 2 do
        local operation, owner = string.match(all[n], '^(%S+) (.*)$')
        local r = refusal(all[n + 1])
        if r and owner == institution and r.till > 0 then
            if operation == 'queue' or operation == 'details' or now - r.since < moment then return true end
        end
    end
    return false
end

-- Return the token as a reply; nil if it is missing, expired or unreadable.
local function load_token(now)
    local t = redis.call('HMGET', TOKEN, 'generation', 'value', 'institutions', 'issued', 'proven', 'expires')
    if not t[1] or not t[2] or not num(t[4], nil) or now >= num(t[6], 0) then return nil end
    if not pcall(cjson.decode, t[3] or '') then return nil end
    return {'token', t[1], t[2], t[3], now - tonumber(t[4]), t[5], barred(now)}
end

local function is_current(token, generation)
    return token ~= nil and token[2] == generation
end

local function is_proven(token) return token[6] == '1' end

local function expire_at(instant, now)
    redis.call('HSET', TOKEN, 'expires', instant)
    redis.call('PEXPIRE', TOKEN, instant - now)
end

local function set_gate(...)
    redis.call('HSET', GATE, ...)
    redis.call('PEXPIRE', GATE, GATE_TTL_MS)
end

-- End the login. No login may start before the pause is over.
local function end_turn(now, reason, pause_ms)
    redis.call('HDEL', GATE, 'nonce')
    set_gate('reason', reason, 'shut', now + pause_ms)
end

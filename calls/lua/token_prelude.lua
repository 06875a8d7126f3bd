-- What the token's scripts share. KEYS: the token's hash, the gate's hash, what the caller did last. ARGV[1]: as in
-- prelude.lua. The last of ARGV numbers the calls of one process, so that a repetition is known as one, however late.
-- Token: generation, value, institutions (JSON), issued, expires, proven, lapsed. Gate: nonce, lease, failures, shut, reason.
local TOKEN, GATE = KEYS[1], KEYS[2]
local GATE_TTL_MS = 86400000

-- Tell whether this call of a script was carried out before, or a later one of the same process was.
local function is_repetition(script)
    local number = tonumber(ARGV[#ARGV])
    if number <= tonumber(redis.call('HGET', KEYS[3], script) or '0') then return true end
    redis.call('HSET', KEYS[3], script, ARGV[#ARGV])
    redis.call('PEXPIRE', KEYS[3], GATE_TTL_MS)
    return false
end

local function now_ms()
    if ARGV[1] ~= '' then return tonumber(ARGV[1]) end
    local t = redis.call('TIME')
    return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- The token as a reply, or nil: gone, or its time is over.
local function load_token(now)
    local t = redis.call('HMGET', TOKEN, 'generation', 'value', 'institutions', 'issued', 'proven', 'lapsed', 'expires')
    if not t[1] or now >= tonumber(t[7]) then return nil end
    return {'token', t[1], t[2], t[3], now - tonumber(t[4]), t[5], t[6]}
end

local function is_current(token, generation)
    return token ~= nil and token[2] == generation
end

local function is_proven(token) return token[6] == '1' end
local function is_lapsed(token) return token[7] == '1' end

local function expire_at(instant, now)
    redis.call('HSET', TOKEN, 'expires', instant)
    redis.call('PEXPIRE', TOKEN, instant - now)
end

local function set_gate(...)
    redis.call('HSET', GATE, ...)
    redis.call('PEXPIRE', GATE, GATE_TTL_MS)
end

-- End the turn; nobody may log in before the pause is over.
local function end_turn(now, reason, pause_ms)
    redis.call('HDEL', GATE, 'nonce')
    set_gate('reason', reason, 'shut', now + pause_ms)
end

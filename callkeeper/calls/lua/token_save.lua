-- End a login with a token. The gate is closed for `pause_ms` until the token is proven.
-- PARTS: token
-- ARGV: clock, nonce, value, institutions, pause_ms, number
-- Returns the token, or nil if another process has saved one meanwhile. While there is no token, a login whose lease has
-- ended may still save its own.
local now = now_ms()
local token = load_token(now)
if is_current(token, nonce) then return token end
if is_repetition('token_save') then return nil end
if redis.call('HGET', login_gate_key, 'nonce') ~= nonce and token ~= nil then return nil end
redis.call('HSET', token_key, 'generation', nonce, 'value', value, 'institutions', institutions, 'issued', now,
    'proven', '0')
expire_at(now + TOKEN_TTL_MS, now)
end_turn(now, 'fault', tonumber(pause_ms))
return load_token(now)

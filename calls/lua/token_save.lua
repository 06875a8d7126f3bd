-- End the login of nonce ARGV[2] with token ARGV[3] for institutions ARGV[4]: gate closed for
-- ARGV[5] ms until the token is proven. Return the token, or nil if another process has saved one meanwhile. While
-- there is no token, a login whose lease has ended may still save its own.
local now = now_ms()
local token = load_token(now)
if is_current(token, ARGV[2]) then return token end
if is_repetition('token_save') then return nil end
if redis.call('HGET', GATE, 'nonce') ~= ARGV[2] and token ~= nil then return nil end
redis.call('HSET', TOKEN, 'generation', ARGV[2], 'value', ARGV[3], 'institutions', ARGV[4], 'issued', now,
    'proven', '0')
expire_at(now + TOKEN_TTL_MS, now)
end_turn(now, 'fault', tonumber(ARGV[5]))
return load_token(now)

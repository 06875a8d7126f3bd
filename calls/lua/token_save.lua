-- End the turn of nonce ARGV[2] with token ARGV[3] for institutions ARGV[4]: life ARGV[5] ms, gate shut for ARGV[6] ms
-- until it is proven. Return the token, or nil if somebody else has brought one meanwhile: a turn that was overtaken while
-- there is no token is as good as any.
local now = now_ms()
local token = load_token(now)
if is_current(token, ARGV[2]) then return token end
if is_repetition('token_save') then return nil end
if redis.call('HGET', GATE, 'nonce') ~= ARGV[2] and token ~= nil then return nil end
redis.call('HSET', TOKEN, 'generation', ARGV[2], 'value', ARGV[3], 'institutions', ARGV[4], 'issued', now,
    'proven', '0')
expire_at(now + tonumber(ARGV[5]), now)
end_turn(now, 'fault', tonumber(ARGV[6]))
return load_token(now)

-- Record an accepted request with a token, so that it lives on. The first one proves the token, and opens the gate some
-- time after the login.
-- PARTS: token
-- ARGV: clock, generation, opens_after_ms, number
local now = now_ms()
local token = load_token(now)
if not is_current(token, generation) or is_repetition('token_slide') then return 0 end
expire_at(now + TOKEN_TTL_MS, now)
if is_proven(token) then return 1 end
redis.call('HSET', token_key, 'proven', '1')
set_gate('failures', 0, 'reason', 'interval')
shut('shut', now, tonumber(opens_after_ms) - token[5])
return 1

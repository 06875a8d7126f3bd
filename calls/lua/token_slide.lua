-- Record an accepted request with token generation ARGV[2], so that it lives on. The first one proves the token, and
-- opens the gate ARGV[3] ms after the login.
local now = now_ms()
local token = load_token(now)
if not is_current(token, ARGV[2]) or is_repetition('token_slide') then return 0 end
expire_at(now + TOKEN_TTL_MS, now)
if is_proven(token) then return 1 end
redis.call('HSET', TOKEN, 'proven', '1')
set_gate('failures', 0, 'reason', 'interval')
shut('shut', now, tonumber(ARGV[3]) - token[5])
return 1

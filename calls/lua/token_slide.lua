-- Record an accepted request with token generation ARGV[2]: it lives ARGV[3] ms from now. The first one proves the
-- token, and opens the gate ARGV[4] ms after the login.
local now = now_ms()
local token = load_token(now)
if not is_current(token, ARGV[2]) or is_repetition('token_slide') then return 0 end
expire_at(now + tonumber(ARGV[3]), now)
if is_proven(token) then return 1 end
redis.call('HSET', TOKEN, 'proven', '1')
set_gate('failures', 0, 'reason', 'interval', 'shut', now - token[5] + tonumber(ARGV[4]))
return 1

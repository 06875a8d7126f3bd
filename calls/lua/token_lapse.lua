-- Note a refused request of generation ARGV[2]. Return 1 if that is a fault: the current token, never proven.
local token = load_token(now_ms())
if not is_current(token, ARGV[2]) then return 0 end
if not is_proven(token) then return 1 end
if is_repetition('token_lapse') then return 0 end
redis.call('HSET', TOKEN, 'lapsed', '1')
return 0

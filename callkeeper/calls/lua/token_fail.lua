-- End a login without a token, and close the gate. If credentials were refused, it is closed only for these.
-- PARTS: token
-- ARGV: clock, nonce, reason, pause_ms, account, number
if redis.call('HGET', login_gate_key, 'nonce') ~= nonce then return 0 end
local now, pause_ms = now_ms(), tonumber(pause_ms)
if reason == 'refused' then
    shut('refused:' .. account, now, pause_ms)
    pause_ms = 0
end
end_turn(now, reason, pause_ms)
return 1

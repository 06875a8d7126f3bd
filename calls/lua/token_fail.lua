-- End the login of nonce ARGV[2] without a token, for reason ARGV[3], and close the gate for ARGV[4] ms. If credentials
-- were refused (ARGV[5] identifies them), the gate is closed only for these.
if redis.call('HGET', GATE, 'nonce') ~= ARGV[2] then return 0 end
local now, pause_ms = now_ms(), tonumber(ARGV[4])
if ARGV[3] == 'refused' then
    shut('refused:' .. ARGV[5], now, pause_ms)
    pause_ms = 0
end
end_turn(now, ARGV[3], pause_ms)
return 1

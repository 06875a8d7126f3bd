-- End the turn of nonce ARGV[2] without a token, for reason ARGV[3]: gate shut for ARGV[4] ms.
if redis.call('HGET', GATE, 'nonce') ~= ARGV[2] then return 0 end
end_turn(now_ms(), ARGV[3], tonumber(ARGV[4]))
return 1

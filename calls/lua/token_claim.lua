-- Return a usable token other than generation ARGV[3], or the turn to log in for nonce ARGV[2] with a lease of ARGV[4] ms,
-- or why there is neither.
local now = now_ms()
local is_old = is_repetition('token_claim')
local token = load_token(now)
if token ~= nil and token[2] ~= ARGV[3] then return token end

local gate = redis.call('HMGET', GATE, 'nonce', 'lease', 'failures', 'shut', 'reason')
local failures = num(gate[3], 0)
if gate[1] == ARGV[2] then return {'granted', failures} end
if is_old then return {'pending'} end
if gate[1] and now < num(gate[2], 0) then return {'pending'} end
if now < num(gate[4], 0) then return {'shut', gate[5], tonumber(gate[4]) - now} end

set_gate('nonce', ARGV[2], 'lease', now + tonumber(ARGV[4]), 'failures', failures + 1)
return {'granted', failures + 1}

-- Return a usable token other than generation ARGV[3], or the right to log in for nonce ARGV[2] with a lease of ARGV[4]
-- ms (ARGV[5] ms after a failed login), or why there is neither. ARGV[6] identifies the credentials.
local now = now_ms()
local is_old = is_repetition('token_claim')
local token = load_token(now)
if token ~= nil and token[2] ~= ARGV[3] then return token end

local gate = redis.call('HMGET', GATE, 'nonce', 'lease', 'failures', 'shut', 'reason', 'refused:' .. ARGV[6])
local failures, shut, refused = num(gate[3], 0), num(gate[4], 0), num(gate[6], 0)
if gate[1] == ARGV[2] then return {'granted', failures} end
if is_old then return {'pending'} end
if gate[1] and now < num(gate[2], 0) then return {'pending'} end
if now < refused then return {'shut', 'refused', refused - now} end
if now < shut then return {'shut', gate[5] or 'outage', shut - now} end

set_gate('nonce', ARGV[2], 'lease', now + tonumber(failures > 0 and ARGV[5] or ARGV[4]), 'failures', failures + 1)
return {'granted', failures + 1}

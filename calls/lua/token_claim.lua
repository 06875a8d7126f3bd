-- Return a usable token other than generation ARGV[3], or the right to log in for nonce ARGV[2] with a lease of ARGV[4]
-- ms (ARGV[5] ms after a failed login), or why there is neither. ARGV[6] identifies the credentials.
local now = now_ms()
local is_old = is_repetition('token_claim')
local token = load_token(now)
if token ~= nil and token[2] ~= ARGV[3] then return token end

local gate = redis.call('HMGET', GATE, 'nonce', 'failures', 'reason')
local failures = num(gate[2], 0)
if gate[1] == ARGV[2] then return {'granted', failures} end
if is_old then return {'pending'} end
if gate[1] and now < shut_until('lease', now, tonumber(ARGV[4])) then return {'pending'} end
local refused = shut_until('refused:' .. ARGV[6], now, LONGEST_REFUSED_MS)
if now < refused then return {'shut', 'refused', refused - now} end
local shut_at = shut_until('shut', now, LONGEST_SHUT_MS)
if now < shut_at then return {'shut', gate[3] or 'outage', shut_at - now} end

set_gate('nonce', ARGV[2], 'failures', failures + 1)
shut('lease', now, tonumber(failures > 0 and ARGV[5] or ARGV[4]))
return {'granted', failures + 1}

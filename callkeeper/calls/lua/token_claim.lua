-- Return a usable token of another generation, or the right to log in, or why there is neither.
-- PARTS: token
-- ARGV: clock, nonce, other_than, lease_ms, lease_after_failure_ms, account, number
-- `nonce` identifies this login, `other_than` is the generation that is not wanted, `account` identifies the credentials.
local now = now_ms()
local is_old = is_repetition('token_claim')
local token = load_token(now)
if token ~= nil and token[2] ~= other_than then return token end

local gate = redis.call('HMGET', login_gate_key, 'nonce', 'failures', 'reason')
local failures = num(gate[2], 0)
if gate[1] == nonce then return {'granted', failures} end
if is_old then return {'pending'} end
if gate[1] and now < shut_until('lease', now, tonumber(lease_ms)) then return {'pending'} end
local refused = shut_until('refused:' .. account, now, LONGEST_REFUSED_MS)
if now < refused then return {'shut', 'refused', refused - now} end
local shut_at = shut_until('shut', now, LONGEST_SHUT_MS)
if now < shut_at then return {'shut', gate[3] or 'outage', shut_at - now} end

set_gate('nonce', nonce, 'failures', failures + 1)
shut('lease', now, tonumber(failures > 0 and lease_after_failure_ms or lease_ms))
return {'granted', failures + 1}

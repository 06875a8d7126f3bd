-- Release a member that a newer release wrote, for a worker of that release. Its record and its notes stay as they are.
-- KEYS: item, due, attention, left members
-- ARGV: now, member, nonce, shortest and longest wait in ms, ms after which it needs a person, why it does,
--       schema number of this release
-- Returns 1, or 0 if another worker holds the claim. A repetition returns 1 and changes nothing.
-- The field `left` is since when a newer worker is waited for. Every save removes it. Workers of a higher schema number
-- claim left members first, whenever they are due.
local now = now_ms()
local held = redis.call('HMGET', KEYS[1], 'nonce', 'saved', 'epoch', 'left')
if held[2] == ARGV[3] then return 1 end
if held[1] ~= ARGV[3] or held[3] ~= epoch() then return 0 end
local since = math.min(now, num(held[4], now))
local waited = now - since
redis.call('HSET', KEYS[1], 'saved', ARGV[3], 'left', since)
redis.call('HDEL', KEYS[1], 'nonce', 'kept')
redis.call('ZADD', KEYS[2], now + math.max(tonumber(ARGV[4]), math.min(tonumber(ARGV[5]), waited)), ARGV[2])
redis.call('ZADD', KEYS[4], ARGV[8], ARGV[2])
if waited >= tonumber(ARGV[6]) then redis.call('HSET', KEYS[3], ARGV[2], ARGV[7]) end
return 1

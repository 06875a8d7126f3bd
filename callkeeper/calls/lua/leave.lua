-- Release a member that a newer release wrote, for a worker of that release. Its record and its notes stay as they are.
-- KEYS: item, due, attention, left
-- ARGV: clock, member, nonce, shortest_ms, longest_ms, patience_ms, reason, schema
-- The wait is between `shortest_ms` and `longest_ms`. After `patience_ms` it needs a person, for `reason`. `schema` is
-- this release's schema number.
-- Returns 1, or 0 if another worker holds the claim. A repetition returns 1 and changes nothing.
-- The field `left` is since when a newer worker is waited for. Every save removes it. Workers of a higher schema number
-- claim left members first, whenever they are due.
local now = now_ms()
local held = redis.call('HMGET', item_key, 'nonce', 'saved', 'epoch', 'left')
if held[2] == nonce then return 1 end
if held[1] ~= nonce or held[3] ~= epoch() then return 0 end
local since = math.min(now, num(held[4], now))
local waited = now - since
redis.call('HSET', item_key, 'saved', nonce, 'left', since)
redis.call('HDEL', item_key, 'nonce', 'kept')
redis.call('ZADD', due_key, now + math.max(tonumber(shortest_ms), math.min(tonumber(longest_ms), waited)), member)
redis.call('ZADD', left_key, schema, member)
if waited >= tonumber(patience_ms) then redis.call('HSET', attention_key, member, reason) end
return 1

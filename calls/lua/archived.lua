-- A call was archived: remove it from the archive's outbox. Its record expires from now on, unless it needs a person.
-- KEYS: its item, inbox, the due set and the attention list of the archive's outbox; the call's item, trail and the
--       attention list of the calls
-- ARGV: now, member, nonce, seconds kept, count of folded notes, their (id, note) pairs
-- Returns 1, 2 if the call was saved again meanwhile and is due again at once, or 0 if another worker holds the claim.
if redis.call('EXISTS', KEYS[1]) == 0 then return 1 end
local held = redis.call('HMGET', KEYS[1], 'nonce', 'epoch')
if held[1] ~= ARGV[3] or held[2] ~= epoch() then return 0 end
local member = ARGV[2]
remove(KEYS[2], folded(KEYS[2], 6, tonumber(ARGV[5])))
if redis.call('HLEN', KEYS[2]) > 0 then
    redis.call('HDEL', KEYS[1], 'nonce')
    redis.call('ZADD', KEYS[3], now_ms(), member)
    return 2
end
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[3], member)
redis.call('HDEL', KEYS[4], member)
if redis.call('HEXISTS', KEYS[5], 'settled') == 1 then
    redis.call('HSET', KEYS[5], 'archived', '1')
    if redis.call('HEXISTS', KEYS[7], member) == 0 then
        redis.call('HSET', KEYS[5], 'over', now_ms())
        redis.call('EXPIRE', KEYS[5], ARGV[4])
        redis.call('EXPIRE', KEYS[6], ARGV[4])
    end
end
return 1

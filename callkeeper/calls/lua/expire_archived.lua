-- A call was archived: remove it from the archive's outbox. Its record expires from now on, unless it needs a person.
-- PARTS: notes
-- KEYS: item, inbox, due, attention, call_item, call_trail, call_attention
-- ARGV: clock, member, nonce, kept_s, note_count, rest...
-- The first four keys are of the archive's outbox. `rest` are the folded notes' (id, note) pairs.
-- Returns 1, 2 if the call was saved again meanwhile and is due again at once, or 0 if another worker holds the claim.
if redis.call('EXISTS', item_key) == 0 then return 1 end
local held = redis.call('HMGET', item_key, 'nonce', 'epoch')
if held[1] ~= nonce or held[2] ~= epoch() then return 0 end
remove(inbox_key, folded(inbox_key, rest, tonumber(note_count)))
if redis.call('HLEN', inbox_key) > 0 then
    redis.call('HDEL', item_key, 'nonce')
    redis.call('ZADD', due_key, now_ms(), member)
    return 2
end
redis.call('DEL', item_key)
redis.call('ZREM', due_key, member)
redis.call('HDEL', attention_key, member)
if redis.call('HEXISTS', call_item_key, 'settled') == 1 then
    redis.call('HSET', call_item_key, 'archived', '1')
    if redis.call('HEXISTS', call_attention_key, member) == 0 then
        redis.call('HSET', call_item_key, 'over', now_ms())
        redis.call('EXPIRE', call_item_key, kept_s)
        redis.call('EXPIRE', call_trail_key, kept_s)
    end
end
return 1

-- Remove expired members from the list of what needs a person, and those that are kept no longer from the settled ones.
-- KEYS: attention, settled
-- ARGV: clock, prefix, kept_s, most
-- A settled call is kept for `kept_s`. At most `most` settled members are looked at.
-- Returns how many settled members were removed.
-- A record that expires later than it would under this setting was settled under a longer one: it expires when it would
-- have under this one. One that is claimed or has notes is saved soon, under this setting. One that waits for a person or
-- for the archive does not expire (its TTL is -1). No command here needs memory, so this also works in a full Redis.
local now, kept_s = now_ms(), tonumber(kept_s)
for _, member in ipairs(redis.call('HKEYS', attention_key)) do
    if redis.call('EXISTS', prefix .. ':item:' .. member) == 0 then redis.call('HDEL', attention_key, member) end
end
local old = redis.call('ZRANGEBYSCORE', settled_key, '-inf', now - kept_s * 1000, 'WITHSCORES', 'LIMIT', 0, most)
for n = 1, #old, 2 do
    local item = prefix .. ':item:' .. old[n]
    local is_held = redis.call('HEXISTS', item, 'nonce') == 1 or redis.call('EXISTS', prefix .. ':inbox:' .. old[n]) == 1
    local since = num(redis.call('HGET', item, 'over'), tonumber(old[n + 1]))
    local left_s = math.max(1, math.ceil(kept_s - (now - since) / 1000))
    if redis.call('TTL', item) > left_s and not is_held then
        redis.call('EXPIRE', item, left_s)
        redis.call('EXPIRE', prefix .. ':trail:' .. old[n], left_s)
    end
    redis.call('ZREM', settled_key, old[n])
end
return #old / 2

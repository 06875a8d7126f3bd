-- Two records turned out to be one call: ours becomes a tombstone that forwards, what it knew becomes a note to the other.
-- KEYS: our item, our inbox, due, our trail, live, open calls of the institution, alias of our id
-- ARGV: now, prefix, our member, nonce, the other member, our voice id, checks we count, the note, seconds kept
-- Returns 1, 0 if the nonce is somebody else's, or 2 if the other id leads back to ours: then ours is the one that stays.
-- A repetition finds the tombstone and answers 1.
local now = now_ms()
local moved = redis.call('HGET', KEYS[1], 'moved')
if moved then return 1 end
local held = redis.call('HMGET', KEYS[1], 'nonce', 'epoch')
if held[1] ~= ARGV[4] or held[2] ~= epoch() then return 0 end
local prefix, other = ARGV[2], ARGV[5]
-- The other may be a tombstone itself; the record at the end of the way goes on.
for _ = 1, 20 do
    local further = redis.call('HGET', prefix .. ':item:' .. other, 'moved')
    if not further then break end
    if further == ARGV[3] then return 2 end
    other = further
end
local item = prefix .. ':item:' .. other
local inbox = prefix .. ':inbox:' .. other

local checks = tonumber(redis.call('HGET', item, 'checks') or '0') + tonumber(ARGV[7])
redis.call('HSET', item, 'checks', math.min(checks, 20))
local notes = redis.call('HGETALL', KEYS[2])
for n = 1, #notes, 2 do
    if redis.call('HEXISTS', inbox, notes[n]) == 0 then redis.call('HSET', inbox, notes[n], notes[n + 1]) end
end
redis.call('HSET', inbox, 'merged:' .. ARGV[6], ARGV[8])
local trail = prefix .. ':trail:' .. other
for _, entry in ipairs(redis.call('LRANGE', KEYS[4], 0, -1)) do redis.call('RPUSH', trail, entry) end

redis.call('DEL', KEYS[1], KEYS[2], KEYS[4])
redis.call('HSET', KEYS[1], 'moved', other)
redis.call('EXPIRE', KEYS[1], tonumber(ARGV[9]))
redis.call('ZREM', KEYS[3], ARGV[3])
redis.call('ZREM', KEYS[5], ARGV[3])
redis.call('HDEL', KEYS[6], ARGV[6])
redis.call('SET', KEYS[7], string.match(other, '^c:[^:]*:(.*)$'), 'EX', 86400)
-- A settled record takes the note too: its ledger has to know what was sent under the other id.
make_due(KEYS[3], item, other, now)
return 1

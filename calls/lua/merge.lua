-- Merge two records of one call: ours becomes a tombstone that points to the other, its contents a note to the other.
-- KEYS: our item, our inbox, due, our trail, live, open calls of the institution, alias of our id
-- ARGV: now, prefix, our member, nonce, the other member, our voice id, checks we count, the note, seconds kept, checks
--       that the other does not count yet, the record that our tombstone keeps, '1' if our id is only another spelling
-- Returns 1; 0 if another worker holds the claim; 2 if the other id leads back to ours, so that ours stays; 3 if the
-- queue has just listed our id, so that it is a call of its own. A repetition finds the tombstone and returns 1.
local now = now_ms()
local moved = redis.call('HGET', KEYS[1], 'moved')
if moved then return 1 end
local held = redis.call('HMGET', KEYS[1], 'nonce', 'epoch')
if held[1] ~= ARGV[4] or held[2] ~= epoch() then return 0 end
if ARGV[12] ~= '1' and redis.call('HEXISTS', KEYS[2], 'listed') == 1 then return 3 end
local prefix = ARGV[2]
local other = follow_tombstones(prefix, ARGV[5], ARGV[3])
if not other then return 2 end
local item = prefix .. ':item:' .. other
local inbox = prefix .. ':inbox:' .. other

local checks = tonumber(redis.call('HGET', item, 'checks') or '0') + tonumber(ARGV[10])
redis.call('HSET', item, 'checks', math.min(checks, CHECK_LIMIT))
local notes = redis.call('HGETALL', KEYS[2])
for n = 1, #notes, 2 do
    local id = notes[n]
    if redis.call('HEXISTS', inbox, id) == 1 then id = id .. ':' .. ARGV[6] end
    redis.call('HSET', inbox, id, notes[n + 1])
end
redis.call('HSET', inbox, 'merged:' .. ARGV[6], ARGV[8])
local trail = prefix .. ':trail:' .. other
for _, entry in ipairs(redis.call('LRANGE', KEYS[4], 0, -1)) do redis.call('RPUSH', trail, entry) end

-- The tombstone keeps the record and the trail, in case the queue lists our id after all. It outlives the other record,
-- which is kept from when it is settled, so that people who made a statement under our id can still see its outcome.
redis.call('DEL', KEYS[1], KEYS[2])
redis.call('HSET', KEYS[1], 'moved', other, 'checks', ARGV[7], 'epoch', held[2], 'was', ARGV[11])
redis.call('EXPIRE', KEYS[1], tonumber(ARGV[9]) + 86400)
redis.call('EXPIRE', KEYS[4], tonumber(ARGV[9]))
redis.call('ZREM', KEYS[3], ARGV[3])
redis.call('ZREM', KEYS[5], ARGV[3])
redis.call('HDEL', KEYS[6], ARGV[6])
redis.call('HDEL', prefix .. ':attention', ARGV[3])
redis.call('SET', KEYS[7], string.match(other, '^c:[^:]*:(.*)$'), 'EX', 86400)
-- A settled record takes the note too, because its ledger must show what was sent under the other id.
make_due(KEYS[3], item, other, now)
return 1

-- Merge two records of one call: ours becomes a tombstone that points to the other, its contents a note to the other.
-- PARTS: notes
-- KEYS: item, inbox, due, trail, live, opened, alias
-- ARGV: clock, prefix, member, nonce, other_member, voice_id, own_checks, note, kept_s, checks_added, record,
--       erased_record
-- `opened` has the open calls of the institution, `alias` is that of our id. `own_checks` is what we count, `checks_added`
-- what of it the other does not count yet. The tombstone keeps `record`, or `erased_record` if either was erased. What
-- was erased of one is of both.
-- Returns 1; 0 if another worker holds the claim; 2 if the other id leads back to ours, so that ours stays; 3 if the
-- queue has just listed our id, so that it is a call of its own. A repetition finds the tombstone and returns 1.
local now = now_ms()
local moved = redis.call('HGET', item_key, 'moved')
if moved then return 1 end
local held = redis.call('HMGET', item_key, 'nonce', 'epoch')
if held[1] ~= nonce or held[2] ~= epoch() then return 0 end
if redis.call('HEXISTS', inbox_key, 'listed') == 1 then return 3 end
local other = follow_tombstones(prefix, other_member, member)
if not other then return 2 end
local item = prefix .. ':item:' .. other
local inbox = prefix .. ':inbox:' .. other

local checks = tonumber(redis.call('HGET', item, 'checks') or '0') + tonumber(checks_added)
redis.call('HSET', item, 'checks', math.min(checks, CHECK_LIMIT))
local notes = redis.call('HGETALL', inbox_key)
for n = 1, #notes, 2 do
    local id = notes[n]
    if redis.call('HEXISTS', inbox, id) == 1 then id = id .. ':' .. voice_id end
    redis.call('HSET', inbox, id, notes[n + 1])
end
redis.call('HSET', inbox, 'merged:' .. voice_id, note)
local trail = prefix .. ':trail:' .. other
for _, entry in ipairs(redis.call('LRANGE', trail_key, 0, -1)) do redis.call('RPUSH', trail, entry) end

-- The tombstone keeps the record and the trail, in case the queue lists our id after all. It outlives the other record,
-- which is kept from when it is settled, so that people who made a statement under our id can still see its outcome.
-- What was erased is '1' for all, or a list of members (JSON).
local ours, theirs = redis.call('HGET', item_key, 'erased'), redis.call('HGET', item, 'erased')
local erased = (ours == '1' or theirs == '1') and '1' or ours or theirs
if erased ~= '1' and ours and theirs then erased = string.sub(ours, 1, -2) .. ',' .. string.sub(theirs, 2) end
local was = erased == '1' and erased_record or record
redis.call('DEL', item_key, inbox_key)
redis.call('HSET', item_key, 'moved', other, 'checks', own_checks, 'epoch', held[2], 'was', was)
if erased then
    for _, each in ipairs({item, item_key}) do redis.call('HSET', each, 'erased', erased) end
end
redis.call('EXPIRE', item_key, tonumber(kept_s) + 86400)
redis.call('EXPIRE', trail_key, tonumber(kept_s))
redis.call('ZREM', due_key, member)
redis.call('ZREM', live_key, member)
redis.call('HDEL', opened_key, voice_id)
redis.call('HDEL', prefix .. ':attention', member)
redis.call('SET', alias_key, string.match(other, '^c:[^:]*:(.*)$'), 'EX', 86400)
-- A settled record takes the note too, because its ledger must show what was sent under the other id.
make_due(due_key, item, other, now)
return 1

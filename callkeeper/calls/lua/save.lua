-- Write and release the claim. Unread notes make the member due at once, unless the step failed and has to wait.
-- PARTS: notes
-- KEYS: item, inbox, due, trail, live, settled, attention, opened, changes
-- ARGV: clock, member, nonce, record, due_ms, least_checks, failures, list, kept_s, attention, voice_id, outbox, entry,
--       archive, note_count, rest...
-- `opened` has the open calls of the institution. `record` is '' to leave it, '-' to delete the member. `due_ms` is from
-- now, '' for never. `list` is 'live', 'settled', 'unconfirmed' or 'lost' (settled until a note reopens it), 'given up',
-- '', or 'as it is', which changes only when it is due. A settled call is kept for `kept_s`. `attention` is why it needs
-- a person, '' if it does not. `outbox` and `archive` are prefixes of outboxes, '' for none. `entry` is the fingerprint
-- of the entry that the queue is expected to have for it, '' if unknown. `rest` are the folded notes' (id,
-- note) pairs, then trail entries.
-- Returns 1, 2 if the member is due at once because of unread notes, or 0 if another worker holds the claim. A
-- repetition of the last save returns 2, because claiming too early does no harm.
local now = now_ms()
local held = redis.call('HMGET', item_key, 'nonce', 'saved', 'checks', 'settled', 'epoch')
if held[2] == nonce then return 2 end
if record == '-' and redis.call('EXISTS', item_key) == 0 then return 1 end
if held[1] ~= nonce or held[5] ~= epoch() then return 0 end
local count = tonumber(note_count)
remove(inbox_key, folded(inbox_key, rest, count))
local unread = redis.call('HLEN', inbox_key) > 0
append(trail_key, rest + 2 * count, changes_key, member, outbox)

if record == '-' and not unread then
    redis.call('DEL', item_key)
    redis.call('ZREM', due_key, member)
    redis.call('ZREM', live_key, member)
    redis.call('HDEL', opened_key, voice_id)
    redis.call('HDEL', attention_key, member)
    redis.call('EXPIRE', trail_key, 86400)
    return 1
end

redis.call('HSET', item_key, 'saved', nonce, 'failures', failures)
redis.call('HDEL', item_key, 'nonce', 'kept', 'left')
if record == '-' then
    redis.call('HDEL', item_key, 'rec')
elseif record ~= '' then
    redis.call('HSET', item_key, 'rec', record)
    redis.call('HDEL', item_key, 'verify')
end
if tonumber(least_checks) > num(held[3], 0) then redis.call('HSET', item_key, 'checks', least_checks) end

if unread and record ~= '' then
    redis.call('ZADD', due_key, now, member)
elseif due_ms ~= '' then
    redis.call('ZADD', due_key, now + tonumber(due_ms), member)
else
    redis.call('ZREM', due_key, member)
end
if list == 'as it is' then return 1 end

local kept_s = tonumber(kept_s)
local settles = list == 'settled' or list == 'unconfirmed' or list == 'lost'
if list == 'live' then
    redis.call('ZADD', live_key, 'NX', now, member)
    if entry ~= '' and redis.call('HEXISTS', opened_key, voice_id) == 1 then
        redis.call('HSET', opened_key, voice_id, entry)
    end
    if held[4] then -- a note has reopened a settled call
        redis.call('ZREM', settled_key, member)
        redis.call('HDEL', item_key, 'settled')
        redis.call('PERSIST', item_key)
        redis.call('PERSIST', trail_key)
        held[4] = false
    end
elseif settles then
    redis.call('ZREM', live_key, member)
    redis.call('ZADD', settled_key, 'NX', now, member)
    redis.call('HDEL', opened_key, voice_id)
    redis.call('HSET', item_key, 'settled', list == 'settled' and '1' or list)
end
-- A settled call expires, but not while it needs a person. One that is given up expires anyway. If there is an archive,
-- it expires only after it was archived (expire_archived.lua).
local is_settled = settles or held[4]
local archive = is_settled and archive or ''
if archive ~= '' then
    redis.call('HDEL', item_key, 'archived')
    leave_note(archive, archive .. ':due', member, 'saved', nonce, now, true)
end
if list == 'given up' or (is_settled and archive == '' and attention == '') then
    redis.call('HSET', item_key, 'over', now)
    redis.call('EXPIRE', item_key, kept_s)
    redis.call('EXPIRE', trail_key, kept_s)
elseif is_settled then
    redis.call('PERSIST', item_key)
    redis.call('PERSIST', trail_key)
end
if attention ~= '' then
    redis.call('HSET', attention_key, member, attention)
else
    redis.call('HDEL', attention_key, member)
end
return (unread and record ~= '') and 2 or 1

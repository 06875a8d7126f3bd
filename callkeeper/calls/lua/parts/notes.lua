-- Notes in the inboxes of members, and the lines of their trails.

-- Make a member due at an instant, unless it is due earlier. If it is claimed, its save or the end of its lease makes
-- it due. A claimed member that is not in the due set was parked after its lease had ended.
local function make_due(due, item, member, at)
    if redis.call('HEXISTS', item, 'nonce') == 0 or not redis.call('ZSCORE', due, member) then
        redis.call('ZADD', due, 'LT', at, member)
    end
end

-- The queue lists a member that was merged into another, or settled because the service never showed it. So it is a
-- call of its own: restore its record. Stored details are read before anything else is done for it.
local function reopen(prefix, member, item, moved)
    local trail = prefix .. ':trail:' .. member
    if moved then
        local was = redis.call('HMGET', item, 'was', 'checks', 'epoch', 'erased')
        redis.call('DEL', item)
        redis.call('HSET', item, 'checks', was[2] or '0')
        if was[1] then redis.call('HSET', item, 'rec', was[1], 'epoch', was[3]) end
        if was[4] then redis.call('HSET', item, 'erased', was[4]) end
    else
        redis.call('HDEL', item, 'settled')
        redis.call('ZREM', prefix .. ':settled', member)
        redis.call('PERSIST', item)
    end
    redis.call('PERSIST', trail)
end

-- Return the member at the end of a chain of tombstones, because a merged record may have been merged again; nil if the
-- chain leads to `ours`.
local function follow_tombstones(prefix, member, ours)
    for _ = 1, MOST_TOMBSTONES do
        local further = redis.call('HGET', prefix .. ':item:' .. member, 'moved')
        if not further then break end
        if further == ours then return nil end
        member = further
    end
    return member
end

-- Leave a note in a member's inbox (one field per kind of note, so a repetition replaces it) and make it due. A
-- tombstone forwards every note except a listing. A settled call accepts only notes meant for settled calls, a lost one
-- every note. Returns 1 if the note was accepted, 0 if not, 2 if not because `most` notes are waiting.
local function leave_note(prefix, due, member, id, note, at, even_settled, most)
    local item = prefix .. ':item:' .. member
    local known = redis.call('HMGET', item, 'moved', 'settled')
    if id == 'listed' and (known[1] or known[2] == 'unconfirmed') then
        reopen(prefix, member, item, known[1])
        known = {}
    end
    if known[1] then
        member = follow_tombstones(prefix, known[1])
        item = prefix .. ':item:' .. member
        known = redis.call('HMGET', item, 'moved', 'settled')
    end
    if not even_settled and known[2] and known[2] ~= 'lost' then return 0 end
    local inbox = prefix .. ':inbox:' .. member
    if most and redis.call('HLEN', inbox) >= most and redis.call('HEXISTS', inbox, id) == 0 then return 2 end
    redis.call('HSET', inbox, id, note)
    make_due(due, item, member, at)
    return 1
end

-- Notes folded into a record are removed when that record is written, unless they were replaced meanwhile.
-- The (id, note) pairs start at ARGV[from]. Returns the ids to remove.
local function folded(inbox, from, count)
    local ids = {}
    for n = from, from + 2 * count - 1, 2 do
        if redis.call('HGET', inbox, ARGV[n]) == ARGV[n + 1] then ids[#ids + 1] = ARGV[n] end
    end
    return ids
end

local function remove(inbox, ids)
    -- One by one, because unpack has a limit and the notes of merged records add up.
    for _, id in ipairs(ids) do redis.call('HDEL', inbox, id) end
end

-- Append ARGV[from] and the following to the trail of a call. If there are any, add the call to the stream of changes
-- and notify the outbox, whose key prefix is `outbox` ('' for none).
local function append(trail, from, changes, member, outbox)
    local length
    for n = from, #ARGV do length = redis.call('RPUSH', trail, ARGV[n]) end
    if not length then return end
    redis.call('XADD', changes, 'MAXLEN', '~', CHANGES_KEPT, '*', 'member', member)
    if outbox ~= '' then leave_note(outbox, outbox .. ':due', member, 'lines', tostring(length), now_ms(), true) end
end

-- Write and keep the claim: a booking, an intention, a "sent". Renews the lease.
-- PARTS: notes
-- KEYS: item, inbox, due, trail, changes, pause
-- ARGV: clock, member, nonce, write, lease_ms, record, checks_expected, checks_then, refuse_notes, refuse_pause,
--       institution, outbox, note_count, rest...
-- `write` numbers the writes of a claim. `record` is '' to leave it. Both numbers of checks are '' unless one is booked.
-- `refuse_notes` is '1' to refuse while notes are unread, else ''. `refuse_pause` is '', 'any', or 'all' to refuse only
-- under a pause of that scope. `outbox` is a key prefix, '' for none. `rest` are the folded notes' (id, note) pairs, then
-- trail entries.
-- Returns {1}, or {0, why}. A write may be repeated at any time, also after later writes of the same holder. The last
-- write's number returns its answer again; a lower number changes nothing and returns {0, 'late'}.
local now = now_ms()
local held = redis.call('HMGET', item_key, 'nonce', 'kept', 'checks', 'epoch')
if held[1] ~= nonce or held[4] ~= epoch() then return {0, 'lease'} end
local prefix = nonce .. '/'
if held[2] and string.sub(held[2], 1, #prefix) == prefix then
    local last, why = string.match(string.sub(held[2], #prefix + 1), '^(%d+)/?(.*)$')
    if tonumber(write) < tonumber(last) then return {0, 'late'} end
    if tonumber(write) == tonumber(last) then return why == '' and {1} or {0, why} end
end
local mark = prefix .. write
-- A refused write uses up its number too, because the reason may be gone when it is repeated.
local function refuse(why)
    redis.call('HSET', item_key, 'kept', mark .. '/' .. why)
    return {0, why}
end
local count = tonumber(note_count)
local ids = folded(inbox_key, rest, count)
if refuse_notes == '1' and redis.call('HLEN', inbox_key) > #ids then return refuse('notes') end
if refuse_pause ~= '' then
    for _, pause in ipairs(redis.call('HMGET', pause_key, institution, '*')) do
        if pause and (refuse_pause == 'any' or string.find(pause, '"scope":"all"', 1, true)) then return refuse('paused') end
    end
end
if checks_expected ~= '' then
    if num(held[3] or '0', CHECK_LIMIT) ~= tonumber(checks_expected) then return refuse('checks') end
    redis.call('HSET', item_key, 'checks', checks_then)
end
redis.call('HSET', item_key, 'kept', mark)
if record ~= '' then
    redis.call('HSET', item_key, 'rec', record)
    redis.call('HDEL', item_key, 'verify')
    remove(inbox_key, ids)
end
redis.call('ZADD', due_key, now + tonumber(lease_ms), member)
append(trail_key, rest + 2 * count, changes_key, member, outbox)
return {1}

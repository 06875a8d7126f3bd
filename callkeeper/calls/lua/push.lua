-- Record push events: write the event log, leave a note on each call, ask for a look at its queue, wake one worker.
-- PARTS: notes, waking
-- KEYS: due, events, wakeup, wake, queue
-- ARGV: clock, prefix, events_kept, events_kept_s, unknown_wait_ms, rest...
-- An unknown call waits for the look at its queue. `rest` are eleven for each event: event (json), call member, the same
-- by its alternate id, key of that id's alias, voice id for the alias ('' for none), whether the alias may lead to the
-- call ('1' or ''), institution member, note id, note ('' to leave none), key of the institution's last sample, is sample
-- ('1' or '').
-- Returns {1 if the caller must enqueue a job, else 0}.
-- A note gets its time from Redis's clock, because the receiving process's clock may differ by hours.
-- An event that is already in the event log is a repetition and leaves no second note.
-- A push about a call that was erased brings no number back.
local function without(json, name)
    local value = cjson.decode(json)
    value[name] = nil
    return cjson.encode(value)
end

local function is_erased(member) return redis.call('HGET', prefix .. ':item:' .. member, 'erased') == '1' end

local now = now_ms()
local looks, touched = {}, false
for n = rest, #ARGV, 11 do
    local event, member, also, alias, alias_of, led, inst, id, note, sample, is_sample = unpack(ARGV, n, n + 10)
    local known = led == '1' and redis.call('GET', alias)
    if known then member = inst:gsub('^i:', 'c:', 1) .. ':' .. known end
    if is_erased(member) or (also ~= member and is_erased(also)) then
        event, note = without(event, 'phone_last4'), note ~= '' and without(note, 'phone_number') or ''
    end
    local is_new = not redis.call('ZSCORE', events_key, event)
    if is_new then
        redis.call('ZADD', events_key, now, event)
        if is_sample == '1' then redis.call('SET', sample, now, 'EX', 604800) end
    end
    touched = touched or note ~= ''
    if is_new and note ~= '' then
        if alias_of ~= '' then redis.call('SET', alias, alias_of, 'EX', 86400) end
        note = string.sub(note, 1, -2) .. ',"recorded_ms":' .. string.format('%.0f', now) .. '}'
        local waits = redis.call('EXISTS', prefix .. ':item:' .. member) == 1 and 0 or tonumber(unknown_wait_ms)
        leave_note(prefix, due_key, member, id, note, now + waits, false)
        looks[inst] = true
    end
end
redis.call('ZREMRANGEBYRANK', events_key, 0, -(tonumber(events_kept) + 1))
redis.call('ZREMRANGEBYSCORE', events_key, '-inf', now - 1000 * tonumber(events_kept_s))
for inst in pairs(looks) do leave_note(prefix, due_key, inst, 'look', string.format('"%d"', now), now, true) end
return {touched and wake_worker(wakeup_key, wake_key, queue_key) or 0}

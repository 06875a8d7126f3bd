-- Shared by all scripts. Each script names its keys and arguments in its first lines, and `callkeeper.calls.store.script` makes
-- them locals in front of this file: KEYS with the ending `_key`, ARGV as they are, and of what is repeated (`rest...`)
-- the index of its first. `clock` is the present time in ms, or '' for Redis's own clock (always, outside of tests).
-- CHECK_LIMIT, MOST_TOMBSTONES and CHANGES_KEPT are put in front, too.

-- Read a stored number; the default if it is missing or unreadable, because an error would stop all workers.
local function num(stored, default) return stored and tonumber(stored) or default end

-- Return an instant until which something waits, at most `longest` ms from now. One that is stored farther ahead was
-- written before the clock was set back: `store` writes the bound instead, so that the wait ends.
local function bounded(stored, now, longest, store)
    local at = num(stored, 0)
    if at - now <= longest then return at end
    store(now + longest)
    return now + longest
end

local function now_ms()
    if clock ~= '' then return tonumber(clock) end
    local t = redis.call('TIME')
    return t[1] * 1000 + math.floor(t[2] / 1000)
end

local function told(section, field)
    local info = redis.pcall('INFO', section)
    return type(info) == 'string' and string.match(info, field .. ':(%w+)') or 'unknown'
end

-- Identify this run of this server. A restart changes the run id, a promotion the replication id. Both are needed: a
-- server that became a replica and was promoted again keeps its run id, but may have missed writes.
local function epoch()
    return told('server', 'run_id') .. '/' .. told('replication', 'master_replid')
end

-- Tell whether some process knew other data in Redis than `born` names, and remember it.
local function knew_other_data(epoch_key, born, last_born)
    if last_born ~= '' and last_born ~= born then redis.call('HSET', epoch_key, 'replaced', '1') end
    return redis.call('HEXISTS', epoch_key, 'replaced') == 1
end

-- Tell whether the data in Redis lacks more than an ordinary failover loses. `claimed_ms` is how many ms workers had claimed
-- when it was written, `last_claimed_ms` the same of the data that a process saw last. It grows whatever the clock does, so
-- only older data has less of it.
local function is_older_data(claimed_ms, last_claimed_ms) return tonumber(last_claimed_ms) - claimed_ms > 60000 end

-- Write back the pauses that a process saw last, if this Redis has lost its data or is an older one. `born` names the
-- data in Redis: it changes when that was lost or may be older. Each place is restored once, so that a pause that was
-- lifted since does not come back. A pause of older data that the process did not see was lifted since: it stays in
-- force, and is remembered under `again:` for the incident.
local function restore_pauses(pauses, history, restored, born, last_born, is_empty, is_older, remembered, now)
    if last_born == '' or last_born == born then return end
    local seen, was_seen = remembered == '' and {} or cjson.decode(remembered), {}
    local function begin()
        if redis.call('HGET', restored, 'born') == born then return end
        redis.call('DEL', restored)
        redis.call('HSET', restored, 'born', born, 'at', now, 'is_empty', is_empty and '1' or '')
    end
    if is_empty or is_older then begin() end
    for _, one in ipairs(seen) do
        was_seen[one[1]] = true
        if redis.call('HEXISTS', pauses, one[1]) == 0 then
            begin()
            if redis.call('HSETNX', restored, 'place:' .. one[1], '1') == 1 then
                redis.call('HSET', pauses, one[1], one[2])
                redis.call('LPUSH', history, one[3])
            end
        end
    end
    local stored = is_older and not is_empty and redis.call('HGETALL', pauses) or {}
    for n = 1, #stored, 2 do
        if not was_seen[stored[n]] then redis.call('HSET', restored, 'again:' .. stored[n], stored[n + 1]) end
    end
end

-- Make a member due at an instant, unless it is due earlier. If it is claimed, its save or the end of its lease makes
-- it due. A claimed member that is not in the due set was parked after its lease had ended.
local function make_due(due, item, member, at)
    if redis.call('HEXISTS', item, 'nonce') == 0 or not redis.call('ZSCORE', due, member) then
        redis.call('ZADD', due, 'LT', at, member)
    end
end

-- Make parked members due again. MAX: one that is claimed meanwhile keeps its lease.
local function unpark(due, parked)
    redis.call('ZUNIONSTORE', due, 2, due, parked, 'AGGREGATE', 'MAX')
    redis.call('DEL', parked)
end

-- Tell whether the caller must enqueue a job: not while one waits, nor within a second after another caller was told
-- to. A shift that starts deletes the marker. The marker holds its time; one in the future (the clock was set back)
-- counts as expired.
local function ask_for_job(marker, queue)
    if redis.call('LLEN', queue) > 0 then return 0 end
    local now = now_ms()
    local age = now - num(redis.call('GET', marker), 0)
    if age >= 0 and age < 1000 then return 0 end
    redis.call('SET', marker, now, 'PX', 1000)
    return 1
end

-- Have a worker handle what was made due: wake a waiting shift, and tell whether to enqueue a job.
local function wake_worker(wakeup, marker, queue)
    if redis.call('LLEN', wakeup) == 0 then redis.call('RPUSH', wakeup, '1') end
    return ask_for_job(marker, queue)
end

-- The queue lists a member that was merged into another, or settled because the service never showed it. So it is a
-- call of its own: restore its record. Stored details are read before anything else is done for it.
local function reopen(prefix, member, item, moved)
    local trail = prefix .. ':trail:' .. member
    if moved then
        local was = redis.call('HMGET', item, 'was', 'checks', 'epoch')
        redis.call('DEL', item)
        redis.call('HSET', item, 'checks', was[2] or '0')
        if was[1] then redis.call('HSET', item, 'rec', was[1], 'epoch', was[3]) end
    else
        redis.call('HDEL', item, 'settled')
        redis.call('ZREM', prefix .. ':settled', member)
        redis.call('PERSIST', item)
    end
    redis.call('PERSIST', trail)
end

-- The breakers (`callkeeper.calls.store.breakers`). One hash has those of the account ('') and of institutions, as in members. Another
-- one has those of kinds of endpoints: 'queue ' for all institutions, 'queue <institution>' for one, 'check <institution>'
-- for its checks. The value is 'failures since wait why'. `since` is 0 while closed. `wait` is the time of the next probe,
-- or of the last failure while closed. An unreadable breaker counts as closed.
local function breakers(key)
    local found, all = {}, redis.call('HGETALL', key)
    for n = 1, #all, 2 do
        local failures, since, wait, why = string.match(all[n + 1], '^(%d+) (%d+) (%d+) (%a+)$')
        if failures and #since < 15 and #wait < 15 then
            found[all[n]] = {failures = tonumber(failures), since = tonumber(since), wait = tonumber(wait), why = why}
        end
    end
    return found
end

local function set_breaker(key, scope, b)
    redis.call('HSET', key, scope, string.format('%.0f %.0f %.0f %s', b.failures, b.since, b.wait, b.why))
    redis.call('EXPIRE', key, 3600)
end

local function is_open(b) return b ~= nil and b.since > 0 end

local function has_token(key, now) return num(redis.call('HGET', key, 'expires'), 0) > now end

-- Return the open breakers that are probed, those with the earliest probe first: {key (1 or 2 as above), scope, breaker}.
-- While one covers others, only it is probed. Checks are not: calls try them (check_turn.lua).
local function probed(all, kinds)
    local found = {}
    local function add(key, scope, b)
        if is_open(b) then found[#found + 1] = {key = key, scope = scope, breaker = b} end
    end
    add(1, '', all[''])
    if #found > 0 then return found end
    for scope, b in pairs(all) do add(1, scope, b) end
    local is_everywhere = is_open(kinds['queue '])
    for scope, b in pairs(kinds) do
        if string.match(scope, '^queue') and (scope == 'queue ' or not is_everywhere) then add(2, scope, b) end
    end
    table.sort(found, function(one, other)
        if one.breaker.wait ~= other.breaker.wait then return one.breaker.wait < other.breaker.wait end
        return one.scope < other.scope
    end)
    return found
end

-- Return when the next probe is due; nil if no breaker is open.
local function next_probe(all, kinds)
    local first = probed(all, kinds)[1]
    return first and first.breaker.wait
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

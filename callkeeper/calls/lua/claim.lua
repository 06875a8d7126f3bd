-- Claim due members: each gets a lease and a nonce.
-- KEYS: due, wake, breakers, pause, epoch, queue, claimer, endpoints, live, pause_history, pauses_restored
-- ARGV: clock, prefix, limit, lease_ms, name, farthest_ms, shift_starts, is_probe, claim_number, number_kept_s, last_epoch,
--       last_epoch_ms, most_of_one, schema, last_born, last_claimed_ms, remembered, rest...
-- `claimer` has the last claim of this claimer, `name` is its name, and this claim has `claim_number`. No legal due time is
-- farther ahead than `farthest_ms`. `shift_starts` and `is_probe` (of the account) are '1' or ''. `last_epoch` is that of
-- the claimer's last claim, '' for none; `last_epoch_ms` that server's present time by the claimer's own clock.
-- `most_of_one` is how many calls of one institution the claimer may hold, '' for any number. `schema` is its schema
-- number. `last_born`, `last_claimed_ms` and `remembered` are `born`, `claimed_ms` and the pauses that its last claim
-- saw, '' or 0 for none: see `callkeeper.calls.store.pausing.PauseMemory`. `rest` are (institution, how many calls it
-- holds) pairs.
-- Returns {now, epoch, since when it is known, breakers, pauses, ms until the next member is due (-1 if none is), jobs
-- waiting, ms in which writes were lost before this epoch (-1 if unknown), live calls, breakers of kinds, born, whether a
-- process knew other data before (1 or 0), claimed_ms, [member, nonce, checks, lost writes, failures, record, ms overdue,
-- [note id, note, ...]] ...}. Lost writes is '' unless Redis changed since the record was written; then 'from:until', in ms
-- of the old server's clock, each empty if unknown. If the claimer's last claim is repeated, the answer is what it still
-- holds; a repeated earlier claim gets nothing. Without the number, a late repetition would return an old nonce again, and
-- a former holder could write.
local now = now_ms()
local LISTED_LATER = 3000 -- ms after which an institution is looked at again whose queue is not listed
local MOST_CLAIMED = 20000 -- ms that a claim adds to `claimed_ms` at the most, if the clock jumps ahead
local current = epoch()
local last = redis.call('HMGET', claimer_key, 'number', 'members')
local number, last_number = tonumber(claim_number), num(last[1], 0)
local nonce = name .. ':' .. claim_number
if number > last_number and shift_starts == '1' then redis.call('DEL', wake_key) end

-- A Redis that was restarted, replaced or emptied counts as new from the first claim that sees it. Writes of the old
-- one after its last known claim may be lost.
local known = redis.call('HMGET', epoch_key, 'id', 'since', 'seen', 'before', 'lost_from', 'lost_until', 'born', 'claimed_ms')
local born = known[7] or ''
local since, before, lost_from, lost_until = num(known[2], now), known[4], known[5], known[6]
local claimed_ms = num(known[8], 0)
local is_older = known[1] and is_older_data(claimed_ms, last_claimed_ms)
if known[1] ~= current or (is_older and last_born == born) then -- the second: imported while the server ran
    since, before, lost_from, lost_until = now, known[1] or '', known[3] or '', ''
    local ended = now
    -- The clocks of two servers may differ by hours. The claimer's own clock tells how much time has passed, except for
    -- the seconds in which its Redis client repeated this claim.
    if last_epoch == before then ended = math.max(tonumber(last_epoch_ms), math.min(now, tonumber(last_epoch_ms) + 5000)) end
    if known[1] and ended >= num(known[3], 0) then lost_until = string.format('%.0f', ended) end
    if known[1] or born == '' then born = nonce end -- a web process may have named the data of an emptied one
    redis.call('HSET', epoch_key, 'id', current, 'since', since, 'before', before, 'lost_from', lost_from, 'lost_until', lost_until,
        'born', born)
elseif since > now then
    since = now
    redis.call('HSET', epoch_key, 'since', since)
end
claimed_ms = math.max(claimed_ms, tonumber(last_claimed_ms)) + math.max(0, math.min(now - num(known[3], now), MOST_CLAIMED))
redis.call('HSET', epoch_key, 'seen', now, 'claimed_ms', claimed_ms)
local is_empty = (before or '') == ''
local is_replaced = knew_other_data(epoch_key, born, last_born) or not is_empty
restore_pauses(pause_key, pause_history_key, pauses_restored_key, born, last_born, is_empty, is_older, remembered, now)
local lost_ms = -1
if num(lost_until, nil) and num(lost_from, nil) then lost_ms = tonumber(lost_until) - tonumber(lost_from) end

-- If Redis's clock was set back, due times lie too far ahead. Members that nobody holds are due now, others when a lease
-- that begins now would end. If no claim has seen the clock before, times that are farther ahead than any legal one
-- show it.
local is_back = num(known[3], now) - now > 1000
local far = redis.call('ZRANGEBYSCORE', due_key, '(' .. (is_back and now or now + tonumber(farthest_ms)), '+inf')
for _, member in ipairs(far) do
    local is_held = redis.call('HEXISTS', prefix .. ':item:' .. member, 'nonce') == 1
    redis.call('ZADD', due_key, 'LT', is_held and now + tonumber(lease_ms) or now, member)
end

local limit = tonumber(limit)
local away, kinds = breakers(breakers_key), breakers(endpoints_key)
if is_open(away['']) and is_probe ~= '1' then limit = 0 end

local answer = {now, current, since, redis.call('HGETALL', breakers_key), redis.call('HGETALL', pause_key), -1, redis.call('LLEN', queue_key), lost_ms,
    redis.call('ZCARD', live_key), redis.call('HGETALL', endpoints_key), born, is_replaced and 1 or 0, claimed_ms}
local taken = {}
local function hand_out(member, its_nonce, late)
    local kept = redis.call('HMGET', prefix .. ':item:' .. member, 'rec', 'checks', 'verify', 'failures')
    local notes = redis.call('HGETALL', prefix .. ':inbox:' .. member)
    -- If the number of checks cannot be read, count all of them as spent.
    answer[#answer + 1] = {member, its_nonce, num(kept[2] or '0', CHECK_LIMIT), kept[3] or '', num(kept[4], 0), kept[1] or '', late, notes}
end

if number == last_number then
    for n, member in ipairs(cjson.decode(last[2])) do
        local its_nonce = nonce .. ':' .. n
        local held = redis.call('HMGET', prefix .. ':item:' .. member, 'nonce', 'epoch')
        if held[1] == its_nonce and held[2] == current then hand_out(member, its_nonce, 0) end
    end
elseif number > last_number then
    local most, holds = num(most_of_one, math.huge), {}
    for n = rest, #ARGV, 2 do holds[ARGV[n]] = tonumber(ARGV[n + 1]) end

    -- Tell whether the service asked for a pause of an institution's requests, of whatever kind.
    local function is_paused(institution) return is_open(away[institution]) and away[institution].why == 'pause' end

    -- Claim a member if possible.
    local function take(member, score)
        local item = prefix .. ':item:' .. member
        local kind, institution = string.match(member, '^(%a):([^:]*)')
        institution = institution or ''
        if kind == 'i' and (is_open(kinds['queue ']) or is_open(kinds['queue ' .. institution]) or is_paused(institution)) then
            redis.call('ZADD', due_key, now + LISTED_LATER, member) -- a probe that is answered makes it due before
            return
        end
        if kind ~= 'i' and institution ~= '' and is_open(away[institution]) then
            -- Park it until the institution answers, so that it is not claimed again and again.
            redis.call('ZREM', due_key, member)
            redis.call('ZADD', prefix .. ':parked:' .. institution, 'LT', score, member)
            return
        end
        if kind == 'c' and (holds[institution] or 0) >= most then return end
        if redis.call('HEXISTS', item, 'rec') == 0 and redis.call('EXISTS', prefix .. ':inbox:' .. member) == 0 then
            redis.call('ZREM', due_key, member)
            return
        end
        if kind == 'c' then holds[institution] = (holds[institution] or 0) + 1 end
        local kept = redis.call('HMGET', item, 'epoch', 'verify', 'born')
        -- The second: older data was imported while the server ran.
        if kept[1] and (kept[1] ~= current or (kept[3] and kept[3] ~= born)) then
            -- A record that was last written under an even earlier epoch misses more than this epoch's lost writes.
            local from = (kept[1] == before and not kept[2]) and lost_from or ''
            redis.call('HSET', item, 'verify', from .. ':' .. (lost_until or string.format('%.0f', now)))
        end
        redis.call('ZREM', prefix .. ':left', member)
        taken[#taken + 1] = member
        local its_nonce = nonce .. ':' .. #taken
        redis.call('HSET', item, 'nonce', its_nonce, 'epoch', current, 'born', born)
        redis.call('ZADD', due_key, now + tonumber(lease_ms), member)
        hand_out(member, its_nonce, now - math.floor(tonumber(score)))
    end

    -- If more is due than is claimed, institutions take turns. The due set may be long, so what is due is also kept in a
    -- sorted set of each institution ('' for what is no call), in `turns` by the number of its last turn. These only
    -- copy the due set, which counts. Each claim copies what fell due since the last one, and a part of the rest: a
    -- large part until all was copied once, then a small one, because some writes to the due set are dated back.
    local turns, copied = prefix .. ':turns', prefix .. ':turns:copied'
    local function turn_of(owner) return prefix .. ':turn:' .. owner end
    local PAGE, MOST_COPIED, COPIED_NEWEST, COPIED_AGAIN, KEPT_S = 1000, 10000, 2000, 250, 3600

    local function copy_ranks(from, to)
        for first = from, to - 1, PAGE do
            local page = redis.call('ZRANGE', due_key, first, math.min(first + PAGE, to) - 1, 'WITHSCORES')
            local by_owner = {}
            for n = 1, #page, 2 do
                local owner = string.match(page[n], '^c:([^:]*)') or ''
                local pairs_of = by_owner[owner] or {}
                by_owner[owner] = pairs_of
                pairs_of[#pairs_of + 1] = page[n + 1]
                pairs_of[#pairs_of + 1] = page[n]
            end
            for owner, pairs_of in pairs(by_owner) do
                redis.call('ZADD', turn_of(owner), unpack(pairs_of))
                redis.call('EXPIRE', turn_of(owner), KEPT_S)
                redis.call('ZADD', turns, 'NX', 0, owner)
            end
        end
    end

    -- `until` is the time up to which all was copied, `next` the rank from which the rest is, `whole` is 1 once all was.
    local function copy()
        local was = redis.call('HMGET', copied, 'until', 'next', 'whole')
        local last = redis.call('ZCOUNT', due_key, '-inf', now)
        local from, is_whole = num(was[2], 0), was[3] == '1'
        if num(was[1], math.huge) > now then
            from, is_whole = 0, false
            copy_ranks(math.max(0, last - COPIED_NEWEST), last)
        else
            local first = redis.call('ZCOUNT', due_key, '-inf', '(' .. was[1])
            local to = math.min(last, first + MOST_COPIED)
            copy_ranks(first, to)
            if to < last then from, is_whole = to, false end
        end
        if from >= last then from = 0 end
        local to = math.min(last, from + (is_whole and COPIED_AGAIN or MOST_COPIED))
        copy_ranks(from, to)
        is_whole = is_whole or to == last
        redis.call('HSET', copied, 'until', now, 'next', to, 'whole', is_whole and '1' or '0')
        redis.call('EXPIRE', copied, KEPT_S)
        redis.call('EXPIRE', turns, KEPT_S)
    end

    -- Claim one member of an institution: the longest due and the last to fall due in turn. A claim may have room for one
    -- only, so claims take turns as well. Returns false if there is none, or none may be claimed.
    local count_of = {}
    local function take_one_of(owner)
        local before, count = #taken, count_of[owner] or 0
        local command = (number + count) % 2 == 1 and 'ZPOPMIN' or 'ZPOPMAX'
        count_of[owner] = count + 1
        for _ = 1, 128 do
            if owner ~= '' and (holds[owner] or 0) >= most then return false end
            local member = redis.call(command, turn_of(owner))[1]
            if not member then
                redis.call('ZREM', turns, owner)
                return false
            end
            local score = redis.call('ZSCORE', due_key, member)
            if score and tonumber(score) <= now then take(member, score) end
            if #taken > before then return true end
        end
        return false
    end

    local function take_turns()
        copy()
        local function look(most_taken)
            while #taken < most_taken and take_one_of('') do end
        end
        look(math.ceil(limit / 2))
        local number_of_turn = num(redis.call('ZRANGE', turns, -1, -1, 'WITHSCORES')[2], 0)
        local going, had = redis.call('ZRANGE', turns, 0, -1), {}
        while #going > 0 and #taken < limit do
            local still = {}
            for _, owner in ipairs(going) do
                if owner ~= '' and #taken < limit and take_one_of(owner) then
                    number_of_turn = number_of_turn + 1
                    had[owner] = number_of_turn
                    still[#still + 1] = owner
                end
            end
            going = still
        end
        look(limit)
        for owner, turn in pairs(had) do redis.call('ZADD', turns, 'XX', turn, owner) end
    end
    -- What workers of earlier releases have left (leave.lua): they would claim it again and again.
    for _, member in ipairs(redis.call('ZRANGEBYSCORE', prefix .. ':left', '-inf', '(' .. schema, 'LIMIT', 0, limit)) do
        redis.call('ZREM', prefix .. ':left', member)
        take(member, now)
    end
    if redis.call('ZCOUNT', due_key, '-inf', now) > limit - #taken then
        if limit > #taken then take_turns() end
    else
        local due = redis.call('ZRANGEBYSCORE', due_key, '-inf', now, 'WITHSCORES')
        for n = 1, #due, 2 do take(due[n], due[n + 1]) end
    end
    redis.call('HSET', claimer_key, 'number', number, 'members', cjson.encode(taken))
    redis.call('EXPIRE', claimer_key, number_kept_s)
end
local first = num(redis.call('ZRANGE', due_key, 0, 0, 'WITHSCORES')[2], math.huge)
local probe = next_probe(away, kinds) or math.huge
if is_open(away['']) then first = probe end
if math.min(first, probe) < math.huge then answer[6] = math.max(0, math.floor(math.min(first, probe)) - now) end
return answer

-- Claim due members: each gets a lease and a nonce.
-- PARTS: breakers, replaced_redis, server, turns
-- KEYS: due, wake, breakers, pause, epoch, queue, claimer, endpoints, live, pause_history, pauses_restored
-- ARGV: clock, prefix, limit, lease_ms, name, farthest_ms, shift_starts, is_probe, claim_number, number_kept_s, last_epoch,
--       last_epoch_ms, most_of_one, free, schema, last_born, last_claimed_ms, remembered, rest...
-- `claimer` has the last claim of this claimer, `name` is its name, and this claim has `claim_number`. No legal due time is
-- farther ahead than `farthest_ms`. `shift_starts` and `is_probe` (of the account) are '1' or ''. `last_epoch` is that of
-- the claimer's last claim, '' for none; `last_epoch_ms` that server's present time by the claimer's own clock.
-- `most_of_one` is how many calls of one institution the claimer may hold, '' for any number; it may hold no more of them
-- than it could still claim either: `free` members of any institution, '' for any number. `schema` is its schema number.
-- `last_born`, `last_claimed_ms` and `remembered` are `born`, `claimed_ms` and the pauses that its last claim saw, '' or 0
-- for none: see `callkeeper.calls.store.pausing.PauseMemory`. `rest` are (institution, how many calls it holds) pairs.
-- Returns {now, epoch, since when it is known, breakers, pauses, ms until the next member is due (-1 if none is), jobs
-- waiting, ms in which writes were lost before this epoch (-1 if unknown), live calls, breakers of kinds, born,
-- whether a process knew other data before (1 or 0), claimed_ms, [member, nonce, checks, lost writes, failures,
-- record, ms overdue, [note id, note, ...], what was erased of it ('' for nothing)] ...}. Lost writes is '' unless
-- Redis changed since the record was written; then 'from:until', in ms of the old server's clock, each empty if
-- unknown. If the claimer's last claim is repeated, the answer is what it still holds; a repeated earlier claim gets
-- nothing. Without the number, a late repetition would return an old nonce again, and a former holder could write.
local now = now_ms()
local LISTED_LATER = 3000 -- ms after which an institution is looked at again whose queue is not listed
local last = redis.call('HMGET', claimer_key, 'number', 'members')
local number, last_number = tonumber(claim_number), num(last[1], 0)
local nonce = name .. ':' .. claim_number
if number > last_number and shift_starts == '1' then redis.call('DEL', wake_key) end

local server = see_server(now, nonce)
local is_empty = (server.before or '') == ''
local is_replaced = knew_other_data(epoch_key, server.born, last_born) or not is_empty
restore_pauses(pause_key, pause_history_key, pauses_restored_key, server.born, last_born, is_empty, server.is_older,
    remembered, now)
local lost_from, lost_until = num(server.lost_from, nil), num(server.lost_until, nil)
local lost_ms = lost_from and lost_until and lost_until - lost_from or -1

-- If Redis's clock was set back, due times lie too far ahead. Members that nobody holds are due now, others when a lease
-- that begins now would end. If no claim has seen the clock before, times that are farther ahead than any legal one
-- show it.
local is_back = server.seen - now > 1000
local far = redis.call('ZRANGEBYSCORE', due_key, '(' .. (is_back and now or now + tonumber(farthest_ms)), '+inf')
for _, member in ipairs(far) do
    local is_held = redis.call('HEXISTS', prefix .. ':item:' .. member, 'nonce') == 1
    redis.call('ZADD', due_key, 'LT', is_held and now + tonumber(lease_ms) or now, member)
end

local limit = tonumber(limit)
local away, kinds = breakers(breakers_key), breakers(endpoints_key)
if is_open(away['']) and is_probe ~= '1' then limit = 0 end

local answer = {
    now, server.id, server.since, redis.call('HGETALL', breakers_key), redis.call('HGETALL', pause_key), -1,
    redis.call('LLEN', queue_key), lost_ms, redis.call('ZCARD', live_key), redis.call('HGETALL', endpoints_key), server.born,
    is_replaced and 1 or 0, server.claimed_ms,
}
local taken = {}
local function hand_out(member, its_nonce, late)
    local kept = redis.call('HMGET', prefix .. ':item:' .. member, 'rec', 'checks', 'verify', 'failures', 'erased')
    local notes = redis.call('HGETALL', prefix .. ':inbox:' .. member)
    -- If the number of checks cannot be read, count all of them as spent.
    answer[#answer + 1] = {
        member, its_nonce, num(kept[2] or '0', CHECK_LIMIT), kept[3] or '', num(kept[4], 0), kept[1] or '', late, notes,
        kept[5] or '',
    }
end

if number == last_number then
    for n, member in ipairs(cjson.decode(last[2])) do
        local its_nonce = nonce .. ':' .. n
        local held = redis.call('HMGET', prefix .. ':item:' .. member, 'nonce', 'epoch')
        if held[1] == its_nonce and held[2] == server.id then hand_out(member, its_nonce, 0) end
    end
elseif number > last_number then
    local most, free, holds = num(most_of_one, math.huge), num(free, math.huge), {}
    for n = rest, #ARGV, 2 do holds[ARGV[n]] = tonumber(ARGV[n + 1]) end
    local function is_full(institution) return (holds[institution] or 0) >= math.min(most, free - #taken) end

    -- Tell whether the service asked for a pause of an institution's requests, of whatever kind.
    local function is_paused(institution) return is_open(away[institution]) and away[institution].why == 'pause' end

    -- Claim a member if possible.
    local function take(member, score)
        local item = prefix .. ':item:' .. member
        local kind, institution = string.match(member, '^(%a):([^:]*)')
        institution = institution or ''
        local is_unlisted = is_open(kinds['queue ']) or is_open(kinds['queue ' .. institution])
        if kind == 'i' and (is_unlisted or is_paused(institution)) then
            redis.call('ZADD', due_key, now + LISTED_LATER, member) -- a probe that is answered makes it due before
            return
        end
        if kind ~= 'i' and institution ~= '' and is_open(away[institution]) then
            -- Park it until the institution answers, so that it is not claimed again and again.
            redis.call('ZREM', due_key, member)
            redis.call('ZADD', prefix .. ':parked:' .. institution, 'LT', score, member)
            return
        end
        if kind == 'c' and is_full(institution) then return end
        if redis.call('HEXISTS', item, 'rec') == 0 and redis.call('EXISTS', prefix .. ':inbox:' .. member) == 0 then
            redis.call('ZREM', due_key, member)
            return
        end
        if kind == 'c' then holds[institution] = (holds[institution] or 0) + 1 end
        local kept = redis.call('HMGET', item, 'epoch', 'verify', 'born')
        -- The second: older data was imported while the server ran.
        if kept[1] and (kept[1] ~= server.id or (kept[3] and kept[3] ~= server.born)) then
            -- A record that was last written under an even earlier epoch misses more than this epoch's lost writes.
            local from = (kept[1] == server.before and not kept[2]) and server.lost_from or ''
            redis.call('HSET', item, 'verify', from .. ':' .. (server.lost_until or string.format('%.0f', now)))
        end
        redis.call('ZREM', prefix .. ':left', member)
        taken[#taken + 1] = member
        local its_nonce = nonce .. ':' .. #taken
        redis.call('HSET', item, 'nonce', its_nonce, 'epoch', server.id, 'born', server.born)
        redis.call('ZADD', due_key, now + tonumber(lease_ms), member)
        hand_out(member, its_nonce, now - math.floor(tonumber(score)))
    end

    -- What workers of earlier releases have left (leave.lua): they would claim it again and again.
    for _, member in ipairs(redis.call('ZRANGEBYSCORE', prefix .. ':left', '-inf', '(' .. schema, 'LIMIT', 0, limit)) do
        redis.call('ZREM', prefix .. ':left', member)
        take(member, now)
    end
    if redis.call('ZCOUNT', due_key, '-inf', now) > limit - #taken then
        if limit > #taken then
            take_turns({now = now, number = number, taken = taken, take = take, is_full = is_full}, limit)
        end
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

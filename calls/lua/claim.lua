-- Claim due members: each gets a lease and a nonce.
-- KEYS: due, wake marker, breakers of account and institutions, pauses, epoch, RQ queue, last claim of this claimer,
--       breakers of kinds of endpoints, live calls
-- ARGV: now, prefix, how many, lease in ms, claimer, farthest legal due time in ms from now, a shift starts ('1' or
--       ''), this claim is the probe of the account ('1' or ''), number of the claim, seconds its number is kept, epoch
--       of the claimer's last claim ('' for none), that server's present time by the claimer's own clock, how many
--       calls of one institution the claimer may hold ('' for any number), schema number of the claimer, then
--       (institution, how many it holds) pairs
-- Returns {now, epoch, since when it is known, breakers, pauses, ms until the next member is due (-1 if none is), jobs
-- waiting, ms in which writes were lost before this epoch (-1 if unknown), live calls, breakers of kinds, [member, nonce, checks, lost
-- writes, failures, record, ms overdue, [note id, note, ...]] ...}. Lost writes is '' unless Redis changed since the
-- record was written; then 'from:until', in ms of the old server's clock, each empty if unknown. If the claimer's last
-- claim is repeated, the answer is what it still holds; a repeated earlier claim gets nothing. Without the number, a
-- late repetition would return an old nonce again, and a former holder could write.
local now = now_ms()
local prefix = ARGV[2]
local LISTED_LATER = 3000 -- ms after which an institution is looked at again whose queue is not listed
local current = epoch()
local last = redis.call('HMGET', KEYS[7], 'number', 'members')
local number, last_number = tonumber(ARGV[9]), num(last[1], 0)
local nonce = ARGV[5] .. ':' .. ARGV[9]
if number > last_number and ARGV[7] == '1' then redis.call('DEL', KEYS[2]) end

-- A Redis that was restarted, replaced or emptied counts as new from the first claim that sees it. Writes of the old
-- one after its last known claim may be lost.
local known = redis.call('HMGET', KEYS[5], 'id', 'since', 'seen', 'before', 'lost_from', 'lost_until')
local since, before, lost_from, lost_until = num(known[2], now), known[4], known[5], known[6]
if known[1] ~= current then
    since, before, lost_from, lost_until = now, known[1] or '', known[3] or '', ''
    local ended = now
    -- The clocks of two servers may differ by hours. The claimer's own clock tells how much time has passed, except for
    -- the seconds in which its Redis client repeated this claim.
    if ARGV[11] == before then ended = math.max(tonumber(ARGV[12]), math.min(now, tonumber(ARGV[12]) + 5000)) end
    if known[1] and ended >= num(known[3], 0) then lost_until = string.format('%.0f', ended) end
    redis.call('HSET', KEYS[5], 'id', current, 'since', since, 'before', before, 'lost_from', lost_from, 'lost_until', lost_until)
elseif since > now then
    since = now
    redis.call('HSET', KEYS[5], 'since', since)
end
redis.call('HSET', KEYS[5], 'seen', now)
local lost_ms = -1
if num(lost_until, nil) and num(lost_from, nil) then lost_ms = tonumber(lost_until) - tonumber(lost_from) end

-- If Redis's clock was set back, due times lie too far ahead. Members that nobody holds are due now, others when a lease
-- that begins now would end. If no claim has seen the clock before, times that are farther ahead than any legal one
-- show it.
local is_back = num(known[3], now) - now > 1000
local far = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. (is_back and now or now + tonumber(ARGV[6])), '+inf')
for _, member in ipairs(far) do
    local is_held = redis.call('HEXISTS', prefix .. ':item:' .. member, 'nonce') == 1
    redis.call('ZADD', KEYS[1], 'LT', is_held and now + tonumber(ARGV[4]) or now, member)
end

local limit = tonumber(ARGV[3])
local away, kinds = breakers(KEYS[3]), breakers(KEYS[8])
if is_open(away['']) and ARGV[8] ~= '1' then limit = 0 end

local answer = {now, current, since, redis.call('HGETALL', KEYS[3]), redis.call('HGETALL', KEYS[4]), -1, redis.call('LLEN', KEYS[6]), lost_ms,
    redis.call('ZCARD', KEYS[9]), redis.call('HGETALL', KEYS[8])}
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
    local most, holds = num(ARGV[13], math.huge), {}
    for n = 15, #ARGV, 2 do holds[ARGV[n]] = tonumber(ARGV[n + 1]) end

    -- Tell whether the service asked for a pause of an institution's requests, of whatever kind.
    local function is_paused(institution) return is_open(away[institution]) and away[institution].why == 'pause' end

    -- Claim a member if possible. Returns false if it stays in the due set.
    local function take(member, score)
        local item = prefix .. ':item:' .. member
        local kind, institution = string.match(member, '^(%a):([^:]*)')
        institution = institution or ''
        if kind == 'i' and (is_open(kinds['queue ']) or is_open(kinds['queue ' .. institution]) or is_paused(institution)) then
            redis.call('ZADD', KEYS[1], now + LISTED_LATER, member) -- a probe that is answered makes it due before
            return true
        end
        if kind ~= 'i' and institution ~= '' and is_open(away[institution]) then
            -- Park it until the institution answers, so that it is not claimed again and again.
            redis.call('ZREM', KEYS[1], member)
            redis.call('ZADD', prefix .. ':parked:' .. institution, 'LT', score, member)
            return true
        end
        -- Checked before anything is read of the member, because thousands may have to be skipped.
        if kind == 'c' and (holds[institution] or 0) >= most then return false end
        if redis.call('HEXISTS', item, 'rec') == 0 and redis.call('EXISTS', prefix .. ':inbox:' .. member) == 0 then
            redis.call('ZREM', KEYS[1], member)
            return true
        end
        if kind == 'c' then holds[institution] = (holds[institution] or 0) + 1 end
        local kept = redis.call('HMGET', item, 'epoch', 'verify')
        if kept[1] and kept[1] ~= current then
            -- A record that was last written under an even earlier epoch misses more than this epoch's lost writes.
            local from = (kept[1] == before and not kept[2]) and lost_from or ''
            redis.call('HSET', item, 'verify', from .. ':' .. (lost_until or string.format('%.0f', now)))
        end
        redis.call('ZREM', prefix .. ':left', member)
        taken[#taken + 1] = member
        local its_nonce = nonce .. ':' .. #taken
        redis.call('HSET', item, 'nonce', its_nonce, 'epoch', current)
        redis.call('ZADD', KEYS[1], now + tonumber(ARGV[4]), member)
        hand_out(member, its_nonce, now - math.floor(tonumber(score)))
        return true
    end

    -- Claim due members up to a number, skipping those that stay.
    local PAGE = 128
    local function take_from(command, from, to, up_to)
        local stepped = 0
        for _ = 1, 16 do
            if #taken >= up_to then return end
            local due = redis.call(command, KEYS[1], from, to, 'WITHSCORES', 'LIMIT', stepped, PAGE)
            for n = 1, #due, 2 do
                if #taken >= up_to then return end
                if not take(due[n], due[n + 1]) then stepped = stepped + 1 end
            end
            if #due < 2 * PAGE then return end -- a member and its score each
        end
    end
    -- What workers of earlier releases have left (leave.lua): they would claim it again and again.
    for _, member in ipairs(redis.call('ZRANGEBYSCORE', prefix .. ':left', '-inf', '(' .. ARGV[14], 'LIMIT', 0, limit)) do
        redis.call('ZREM', prefix .. ':left', member)
        take(member, now)
    end
    -- Half of them are the longest due, half the last to fall due, so that new calls get a turn after an outage.
    take_from('ZRANGEBYSCORE', '-inf', now, math.ceil(limit / 2))
    take_from('ZREVRANGEBYSCORE', now, '-inf', limit)
    redis.call('HSET', KEYS[7], 'number', number, 'members', cjson.encode(taken))
    redis.call('EXPIRE', KEYS[7], ARGV[10])
end
local first = num(redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2], math.huge)
local probe = next_probe(away, kinds) or math.huge
if is_open(away['']) then first = probe end
if math.min(first, probe) < math.huge then answer[6] = math.max(0, math.floor(math.min(first, probe)) - now) end
return answer

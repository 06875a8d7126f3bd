-- If more is due than one claim takes, institutions take turns (claim.lua). The due set may be long, so what is due is
-- also kept in a sorted set of each institution ('' for what is no call), in `turns` by the number of its last turn.
-- These only copy the due set, which counts. Each claim copies what fell due since the last one, and a part of the
-- rest: a large part until all was copied once, then a small one, because some writes to the due set are dated back.
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
local function copy(now)
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
local function take_one_of(owner, claim)
    local before, count = #claim.taken, claim.turns[owner] or 0
    local command = (claim.number + count) % 2 == 1 and 'ZPOPMIN' or 'ZPOPMAX'
    claim.turns[owner] = count + 1
    for _ = 1, 128 do
        if owner ~= '' and claim.is_full(owner) then return false end
        local member = redis.call(command, turn_of(owner))[1]
        if not member then
            redis.call('ZREM', turns, owner)
            return false
        end
        local score = redis.call('ZSCORE', due_key, member)
        if score and tonumber(score) <= claim.now then claim.take(member, score) end
        if #claim.taken > before then return true end
    end
    return false
end

-- Claim up to `limit` members. `claim` is {now, number: which claim of its claimer, taken: the members so far,
-- take(member, score): claims it if possible, is_full(institution): whether the claimer may hold no more of its calls}.
local function take_turns(claim, limit)
    copy(claim.now)
    claim.turns = {} -- how many each institution had
    local function look(most_taken)
        while #claim.taken < most_taken and take_one_of('', claim) do end
    end
    look(math.ceil(limit / 2))
    local number_of_turn = num(redis.call('ZRANGE', turns, -1, -1, 'WITHSCORES')[2], 0)
    local going, had = redis.call('ZRANGE', turns, 0, -1), {}
    while #going > 0 and #claim.taken < limit do
        local still = {}
        for _, owner in ipairs(going) do
            if owner ~= '' and #claim.taken < limit and take_one_of(owner, claim) then
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

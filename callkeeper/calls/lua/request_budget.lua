-- The request budget that all workers share: see `callkeeper.calls.store.request_budget`.
-- KEYS: budget
-- ARGV: clock, asked, rest...
-- The budgets are a hash of scope -> numbers; scope '' is the account, else an institution as in members. Waiting members
-- are kept beside it, in a sorted set per scope and class: member -> when it is expected to ask again.
-- `asked` says what `rest` is:
--       'take': class, requests, member, a random number from 0 to 1, (scope, configured rate or 0) once or twice
--       'busy', 'own' or 'strained': scope, configured rate or 0, answers per second of the reporter, number of
--       institutions we act for
--       'calm': scopes ... or none for all
-- 'take' returns 0 if the requests may be sent, else after how many ms to ask again. 'busy' records a 429, 'own' one of
-- an institution's own limit, 'strained' 503 answers, 'calm' forgets what those taught. They return the scopes that are
-- known. A repetition takes, or lowers, once more, which errs on the safe side.
local now = now_ms()

local CLASSES = 4 -- effects; checks; listings; reads
local SHARES = {0.3, 0.3, 0.15, 0.1} -- the least share of each waiting class; the rest goes to the first of them
local LONGEST = 30000 -- no member waits longer than this, in ms
local GRACE = 1000 -- a member that is this many ms late does not count as waiting any more
local MOST = {2, 1, 1, 1} -- permits that a member of each class takes at most
local NEAR = 4 -- a member that asked in vain waits a random number of turns of its class, up to this many: a larger
-- number means fewer vain requests, a smaller one keeps the order better
local SOON = 50 -- members expected within this many ms go before others
local AT_ONCE = 18 -- most permits in a window; at rates up to this a window lasts for a second or more
local WINDOWS = 25 -- most windows in a second, because the clock has steps of a millisecond
local MEMORY = 2000 -- counts fade with this time constant, in ms
local LOWERED = 0.85 -- the factor by which a 429 lowers the learned rate, at most once a second
local FIRST, LEAST = 10, 4 -- the least rate after the very first 429, and after the others
local FORGOTTEN = 3600 -- seconds after which an unused learned rate is forgotten
local WATCHED = 4000 -- ms between the first sign of load and the first lowering; requests are only counted meanwhile
local ENOUGH = 0.6 -- the share of what was sent before that stays in any case: effects, checks and listings need it
local CALM = 30000 -- ms without a sign of load after which the rate that it lowered is forgotten

local LIMITED, STARTING, LOADED = 0, 1, 2 -- learned from 429; from the first 429 only; from other signs
local GROWS = {[LIMITED] = 1.03, [STARTING] = 1.5, [LOADED] = 1.06} -- the factor by which the learned rate grows in each
-- second in which work waits
local FIELDS = {'limit', 'used', 'at', 'granted', 'learned', 'lowered', 'kind', 'least', 'set'}
local function load(scope)
    local stored = redis.call('HGET', budget_key, scope) or ''
    local s, values = {scope = scope, credit = {}, pace = {}, log = {}}, {}
    for value in string.gmatch(stored, '%S+') do values[#values + 1] = tonumber(value) end
    local is_known = #values >= #FIELDS + 2 * CLASSES
    for n, field in ipairs(FIELDS) do s[field] = is_known and values[n] or 0 end
    for c = 1, CLASSES do
        s.credit[c] = is_known and values[#FIELDS + c] or 1
        s.pace[c] = is_known and values[#FIELDS + CLASSES + c] or 0
    end
    -- What is stored is never later than now, except if Redis's clock was set back.
    for n = #FIELDS + 2 * CLASSES + 1, #values do s.log[#s.log + 1] = math.min(values[n], now) end
    s.at, s.lowered = is_known and math.min(s.at, now) or now, math.min(s.lowered, now)
    return s
end

local function queue(s, c) return budget_key .. ':' .. s.scope .. ':' .. c end

local function rate(s)
    if s.set > 0 and (s.learned == 0 or s.set < s.learned) then return s.set end
    return s.learned
end

-- Return how many permits a window holds, and how long it is in ms. Up to AT_ONCE per second no second holds more than
-- the rate, rounded up: a service with such a limit refuses none.
local function window(r)
    local windows = math.min(math.ceil(r / AT_ONCE), WINDOWS)
    local most = math.max(2, math.ceil(r / windows))
    return most, most / r * 1000
end

local function store(s)
    local values = {}
    s.limit, s.used = rate(s), s.granted / MEMORY * 1000
    local kept = s.limit > 0 and window(s.limit) or 0
    for _, field in ipairs(FIELDS) do values[#values + 1] = string.format('%.4f', s[field]) end
    for c = 1, CLASSES do values[#FIELDS + c] = string.format('%.4f', s.credit[c]) end
    for c = 1, CLASSES do values[#FIELDS + CLASSES + c] = string.format('%.4f', s.pace[c]) end
    for n = math.max(1, #s.log - kept + 1), #s.log do values[#values + 1] = string.format('%.0f', s.log[n]) end
    redis.call('HSET', budget_key, s.scope, table.concat(values, ' '))
    redis.call('EXPIRE', budget_key, FORGOTTEN)
end

-- Apply the time that has passed since the last use, and find which members wait.
local function go_on(s)
    local passed = math.max(0, math.min(now - s.at, 60000))
    s.at, s.head, s.size, s.waiting, s.ahead = now, {}, {}, 0, {}
    for c = 1, CLASSES do
        redis.call('ZREMRANGEBYSCORE', queue(s, c), '-inf', now - GRACE)
        redis.call('ZREMRANGEBYSCORE', queue(s, c), '(' .. now + LONGEST, '+inf') -- from before the clock was set back
        s.head[c] = num(redis.call('ZRANGE', queue(s, c), 0, 0, 'WITHSCORES')[2], math.huge)
        s.size[c] = s.head[c] < math.huge and redis.call('ZCARD', queue(s, c)) or 0
        s.waiting = s.waiting + s.size[c]
        s.ahead[c] = s.waiting
    end
    if s.waiting > 0 then
        s.learned = s.learned * GROWS[s.kind] ^ (math.min(passed, 1000) / 1000)
    end
    local r, fade = rate(s), math.exp(-passed / MEMORY)
    s.granted = s.granted * fade
    for c = 1, CLASSES do
        s.credit[c] = math.min(2, s.credit[c] + SHARES[c] * r * passed / 1000)
        s.pace[c] = s.pace[c] * fade
    end
    return r
end

-- Return how many waiting classes come before this one: those below their share first, then by priority.
local function before(s, c, soon)
    local found = 0
    for other = 1, CLASSES do
        if other ~= c and s.head[other] <= soon then
            local mine, theirs = s.credit[c] >= 1, s.credit[other] >= 1
            if (theirs and not mine) or (theirs == mine and other < c) then found = found + MOST[other] end
        end
    end
    return found
end

-- Return after how many ms the window has room for so many permits.
local function missing(s, r, permits)
    local most, length = window(r)
    local last = s.log[#s.log - most + math.min(most, permits)]
    return last and math.max(0, last + length - now) or 0
end

-- Return after how many ms to ask again; 0 if the requests may be sent.
local function wait_of(s, r, c, n, member, random)
    local rank = redis.call('ZRANK', queue(s, c), member)
    local soon = now + math.max(SOON, 500 / r)
    local first, behind = before(s, c, soon), not rank and s.head[c] <= soon and 1 or 0
    if n + first + behind <= window(r) and missing(s, r, n + first + behind) == 0 then return 0 end
    -- The first waiting class gets the next permits; the others get about as many as they did recently.
    local pace = first == 0 and r or math.max(SHARES[c] * r, math.min(r, 1.3 * s.pace[c] / MEMORY * 1000))
    local free = missing(s, r, n)
    if rank then return free + (rank + random * (first == 0 and 0.25 or math.min(s.size[c], NEAR))) / pace * 1000 end
    local last = num(redis.call('ZRANGE', queue(s, c), -1, -1, 'WITHSCORES')[2], now)
    local wait = math.max(free, last - now) + 1000 / pace
    -- The wait is bounded, so that a member notices when others finish, but not so short that all ask all the time.
    return math.min(wait, math.max(2000, s.ahead[c] / r * 1000) * (0.75 + random / 2))
end

local function take()
    local class, requests, member, random = unpack(ARGV, rest, rest + 3)
    local c, n = tonumber(class), tonumber(requests)
    local states, waits, wait = {}, {}, 0
    for arg = rest + 4, #ARGV, 2 do
        local s = load(ARGV[arg])
        s.set = tonumber(ARGV[arg + 1])
        if s.kind == LOADED and now - s.lowered > CALM then
            redis.call('HDEL', budget_key, s.scope)
            s.learned, s.kind = 0, LIMITED
        end
        local r = go_on(s)
        if r > 0 or s.kind == LOADED then
            states[#states + 1] = s
            waits[#waits + 1] = r > 0 and wait_of(s, r, c, n, member, tonumber(random)) or 0
            wait = math.max(wait, waits[#waits])
        end
    end
    if wait > 0 then wait = math.min(LONGEST, math.max(1, math.ceil(wait))) end
    for i, s in ipairs(states) do
        if wait == 0 then
            for _ = 1, n do s.log[#s.log + 1] = now end
            s.granted = s.granted + n
            s.pace[c] = s.pace[c] + n
            s.credit[c] = math.max(0, s.credit[c] - n)
        end
        if waits[i] > 0 then
            redis.call('ZADD', queue(s, c), now + wait, member)
            redis.call('PEXPIRE', queue(s, c), 120000)
        elseif s.head[c] < math.huge then
            redis.call('ZREM', queue(s, c), member)
        end
        store(s)
    end
    return wait
end

-- For a second after the rate was lowered, 429s are ignored: most belong to requests that were already in flight.
local function lower(s, answered)
    go_on(s)
    local r = rate(s)
    if s.learned > 0 and now - s.lowered < 1000 then return end
    if r == 0 then
        s.learned, s.kind, s.granted = math.max(FIRST, answered), STARTING, 0
        for n = 1, window(s.learned) do s.log[n] = now end
    else
        s.learned, s.kind = math.max(LEAST, LOWERED * r), LIMITED
    end
    s.lowered = now
end

-- Lower the rate because of the service's load. The first sign only begins the counting of requests, so that it is known
-- how many are sent. A rate that was set is known to be right.
local function ease(s)
    go_on(s)
    local age, sent = now - s.lowered, s.granted / MEMORY * 1000
    if s.set > 0 then return end
    if s.kind ~= LOADED and s.learned > 0 then return lower(s, 0) end
    if s.kind ~= LOADED then
        s.kind, s.lowered = LOADED, now
    elseif age >= (s.learned == 0 and WATCHED or 1000) then
        local found = s.learned == 0 and sent or math.min(sent, s.learned)
        s.least = math.max(FIRST, s.least, ENOUGH * found)
        s.learned, s.lowered = math.max(s.least, LOWERED * found), now
    end
end

-- If three institutions, or all, are lowered within five seconds of each other, the limit is the account's.
local function common(acted_for, is_load)
    local found = {}
    for _, scope in ipairs(redis.call('HKEYS', budget_key)) do
        local s = load(scope)
        local is_such = is_load and s.kind == LOADED or not is_load and s.kind ~= LOADED and s.learned > 0
        if scope ~= '' and is_such and now - s.lowered < 5000 then found[#found + 1] = s end
    end
    return #found >= math.min(3, math.max(2, acted_for)) and found or {}
end

local function told(is_load, is_own)
    local scope = ARGV[rest]
    local set, answered, acted_for = tonumber(ARGV[rest + 1]), tonumber(ARGV[rest + 2]), tonumber(ARGV[rest + 3])
    local function note(s, answers)
        if is_load then ease(s) else lower(s, answers) end
        if s.learned > 0 or s.set > 0 or s.kind == LOADED then store(s) end
    end
    local account = load('')
    local is_known = account.learned > 0 or account.set > 0 or is_load and account.kind == LOADED
    local s = scope ~= '' and (is_own or not is_known) and load(scope) or account
    if s.scope == scope then s.set = set end
    note(s, answered)
    if s ~= account and not is_own then
        -- From then on the account has a rate, and the rates learned for single institutions are forgotten.
        local most, found = 0, common(acted_for, is_load)
        for _, other in ipairs(found) do
            most = math.max(most, other.learned)
            redis.call('HDEL', budget_key, other.scope)
        end
        if #found > 0 then note(account, most) end
    end
    return redis.call('HKEYS', budget_key)
end

local function calm()
    local scopes = #ARGV >= rest and {unpack(ARGV, rest)} or redis.call('HKEYS', budget_key)
    for _, scope in ipairs(scopes) do
        if load(scope).kind == LOADED then redis.call('HDEL', budget_key, scope) end
    end
    return redis.call('HKEYS', budget_key)
end

if asked == 'take' then return take() end
if asked == 'calm' then return calm() end
return told(asked == 'strained', asked == 'own')

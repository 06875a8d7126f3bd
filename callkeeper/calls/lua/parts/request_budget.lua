-- The request budget that all workers share: see `callkeeper.calls.store.request_budget`.
-- KEYS: budget
-- The budgets are a hash of scope -> numbers; scope '' is the account, else an institution as in members. Waiting members
-- are kept beside it, in a sorted set per scope and class: member -> when it is expected to ask again.
local now = now_ms()

local CLASSES = 4 -- effects; checks; listings; reads
local SHARES = {0.3, 0.3, 0.15, 0.1} -- the least share of each waiting class; the rest goes to the first of them
local LONGEST = 30000 -- no member waits longer than this, in ms
local GRACE = 1000 -- a member that is this many ms late does not count as waiting any more
local AT_ONCE = 18 -- most permits in a window; at rates up to this a window lasts for a second or more
local WINDOWS = 25 -- most windows in a second, because the clock has steps of a millisecond
local MEMORY = 2000 -- counts fade with this time constant, in ms
local FORGOTTEN = 3600 -- seconds after which an unused learned rate is forgotten

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
    local passed = now - s.at
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

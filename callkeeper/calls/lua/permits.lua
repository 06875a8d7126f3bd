-- Take permits for a member's next requests.
-- PARTS: request_budget
-- ARGV: clock, permit_class, requests, member, random, rest...
-- `random` is a number from 0 to 1; `rest` are (scope, configured rate or 0) pairs: of the account, and of the
-- institution if it has a limit of its own.
-- Returns 0 if the requests may be sent, else after how many ms to ask again. A repetition takes once more, which errs on
-- the safe side.
local MOST = {2, 1, 1, 1} -- permits that a member of each class takes at most
local NEAR = 4 -- a member that asked in vain waits a random number of turns of its class, up to this many: a larger
-- number means fewer vain requests, a smaller one keeps the order better
local SOON = 50 -- members expected within this many ms go before others
local CALM = 30000 -- ms without a sign of load after which the rate that it lowered is forgotten
local c, n, random = tonumber(permit_class), tonumber(requests), tonumber(random)

-- Return how many permits the waiting classes take that come before this one: those below their share first, then by
-- priority.
local function before(s, soon)
    local found = 0
    for other = 1, CLASSES do
        if other ~= c and s.head[other] <= soon then
            local mine, theirs = s.credit[c] >= 1, s.credit[other] >= 1
            if (theirs and not mine) or (theirs == mine and other < c) then found = found + MOST[other] end
        end
    end
    return found
end

-- Return after how many ms the window has room for this many permits.
local function missing(s, r, permits)
    local most, length = window(r)
    local last = s.log[#s.log - most + math.min(most, permits)]
    return last and math.max(0, last + length - now) or 0
end

-- Return after how many ms to ask again; 0 if the requests may be sent.
local function wait_of(s, r)
    local rank = redis.call('ZRANK', queue(s, c), member)
    local soon = now + math.max(SOON, 500 / r)
    local first, behind = before(s, soon), not rank and s.head[c] <= soon and 1 or 0
    if n + first + behind <= window(r) and missing(s, r, n + first + behind) == 0 then return 0 end
    -- The first waiting class gets the next permits; the others get about as many as they did recently.
    local pace = first == 0 and r or math.max(SHARES[c] * r, math.min(r, 1.3 * s.pace[c] / MEMORY * 1000))
    local free = missing(s, r, n)
    local turns = rank and rank + random * (first == 0 and 0.25 or math.min(s.size[c], NEAR))
    if turns then return math.max(1, free + turns / pace * 1000) end
    local last = num(redis.call('ZRANGE', queue(s, c), -1, -1, 'WITHSCORES')[2], now)
    local wait = math.max(free, last - now) + 1000 / pace
    -- The wait is bounded, so that a member notices when others finish, but not so short that all ask all the time.
    return math.min(wait, math.max(2000, s.ahead[c] / r * 1000) * (0.75 + random / 2))
end

local states, waits, wait = {}, {}, 0
for arg = rest, #ARGV, 2 do
    local s = load(ARGV[arg])
    s.set = tonumber(ARGV[arg + 1])
    if s.kind == LOADED and now - s.lowered > CALM then
        redis.call('HDEL', budget_key, s.scope)
        s.learned, s.kind = 0, LIMITED
    end
    local r = go_on(s)
    if r > 0 or s.kind == LOADED then
        states[#states + 1] = s
        waits[#waits + 1] = r > 0 and wait_of(s, r) or 0
        wait = math.max(wait, waits[#waits])
    end
end
wait = math.min(LONGEST, math.ceil(wait))
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

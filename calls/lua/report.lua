-- Record the result of a request for all workers: see `calls.store.breakers`.
-- KEYS: breakers, last claim of the reporter (its reports are numbered there too), due, token
-- ARGV: now, number of the report, prefix, result ('answer' | 'failure' | 'pause' | 'login'), its institution ('' for
--       the account), ms of the pause, failures that open a breaker, institutions that open the account's, within how
--       many ms, ms until the first probe, seconds the number is kept, the institutions we act for, as members ...
-- Returns {breakers, which were opened, which were closed}. A report whose number is not above the reporter's last one
-- changes nothing.
local now = now_ms()
local opened, closed = {}, {}
local function answer() return {redis.call('HGETALL', KEYS[1]), opened, closed} end
if tonumber(ARGV[2]) <= num(redis.call('HGET', KEYS[2], 'report'), 0) then return answer() end
redis.call('HSET', KEYS[2], 'report', ARGV[2])
redis.call('EXPIRE', KEYS[2], ARGV[11])

local prefix, heard, scope = ARGV[3], ARGV[4], ARGV[5]
local all, there_is_token = breakers(KEYS[1]), has_token(KEYS[4], now)
local account = all['']

-- Have an institution's queue read before anything else is done for it, unless it is claimed.
local function look_first(member)
    local first = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')[2]
    if redis.call('HEXISTS', prefix .. ':item:' .. member, 'nonce') == 0 then
        redis.call('ZADD', KEYS[3], 'XX', math.min(now, tonumber(first or now)) - 1, member)
    end
end

if heard == 'answer' then
    if scope ~= '' and all[scope] then
        redis.call('HDEL', KEYS[1], scope)
        if is_open(all[scope]) then
            closed[1] = scope
            unpark(KEYS[3], prefix .. ':parked:' .. scope)
            look_first('i:' .. scope)
        end
    end
    if account then
        redis.call('HDEL', KEYS[1], '')
        if is_open(account) then
            closed[#closed + 1] = ''
            for other, b in pairs(all) do
                if other ~= '' and other ~= scope and is_open(b) and b.why == 'failure' then
                    b.wait = now
                    set_breaker(KEYS[1], other, b)
                end
            end
            for n = #ARGV, 12, -1 do look_first(ARGV[n]) end
        end
    end
    return answer()
end

-- Without a token no request can be made for any institution, so this counts as a failed login.
if heard == 'failure' and scope ~= '' and not there_is_token then heard = 'login' end
if heard == 'login' then
    if there_is_token then return answer() end
    scope = ''
end
local mine = all[scope] or {failures = 0, since = 0, wait = 0, why = heard}
mine.failures = mine.failures + 1
local function open(name, b, wait)
    if not is_open(b) then
        b.since = now
        opened[#opened + 1] = name
    end
    b.wait = math.max(b.wait, now + wait)
end
if heard == 'pause' then
    mine.why = heard
    open(scope, mine, tonumber(ARGV[6]))
elseif not is_open(mine) and (heard == 'login' or mine.failures >= tonumber(ARGV[7])) then
    mine.why = heard
    open(scope, mine, tonumber(ARGV[10]))
end
set_breaker(KEYS[1], scope, mine)

-- Institutions that fail together open the account's breaker. It is probed at once, since others may answer.
if scope ~= '' and #opened == 1 and heard == 'failure' and not (account and is_open(account)) then
    all[scope] = mine
    local failing, together, acted_for = 0, 0, #ARGV - 11
    for other, b in pairs(all) do
        if other ~= '' and is_open(b) and b.why == 'failure' then
            failing = failing + 1
            if math.abs(now - b.since) < tonumber(ARGV[9]) then together = together + 1 end
        end
    end
    local are_all = acted_for > 0 and failing >= acted_for
    if are_all or together >= tonumber(ARGV[8]) then
        account = account or {failures = mine.failures, since = 0, wait = 0, why = heard}
        account.why = heard
        open('', account, are_all and tonumber(ARGV[10]) or 0)
        set_breaker(KEYS[1], '', account)
    end
end
return answer()

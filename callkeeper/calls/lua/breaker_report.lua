-- Record the result of a request for all workers: see `callkeeper.calls.store.breakers`.
-- PARTS: breakers
-- KEYS: breakers, claimer, due, token, endpoints, live
-- ARGV: clock, number, prefix, result, kind, institution, checked_call, pause_ms, answered_ms_ago, failures_that_open,
--       together, within_ms, first_probe_ms, number_kept_s, rest...
-- `claimer` has the number of the reporter's last report. `result` is 'answer', 'failure', 'pause' or 'login', `kind`
-- 'calls', 'queue' or 'check', `institution` '' for the account. `checked_call` is the call that a failed check was made
-- for. If `together` institutions (for checks: calls) fail within `within_ms`, a wider breaker opens. `answered_ms_ago` is
-- when the reporter was last answered by this kind of endpoint for any institution, '' if never: what opened before does
-- not show that all fail. `rest` are the institutions that we act for, as in members.
-- Returns {breakers, breakers of kinds, which were opened, which were closed}. A report whose number is not above the
-- reporter's last one changes nothing.
local now = now_ms()
local opened, closed = {}, {}
local function answer()
    return {redis.call('HGETALL', breakers_key), redis.call('HGETALL', endpoints_key), opened, closed}
end
if tonumber(number) <= num(redis.call('HGET', claimer_key, 'report'), 0) then return answer() end
redis.call('HSET', claimer_key, 'report', number)
redis.call('EXPIRE', claimer_key, number_kept_s)

local together, within, first_probe = tonumber(together), tonumber(within_ms), tonumber(first_probe_ms)
local all, kinds = breakers(breakers_key), breakers(endpoints_key)
local checked = prefix .. ':unchecked:' .. institution

-- Have an institution's queue read before anything else is done for it, unless it is claimed.
local function look_first(its)
    local member = 'i:' .. its
    local first = redis.call('ZRANGE', due_key, 0, 0, 'WITHSCORES')[2]
    if redis.call('HEXISTS', prefix .. ':item:' .. member, 'nonce') == 0 then
        redis.call('ZADD', due_key, 'XX', math.min(now, tonumber(first or now)) - 1, member)
    end
end

local function look_everywhere()
    for n = #ARGV, rest, -1 do look_first(ARGV[n]) end
end

-- Close a breaker. Returns whether it was open.
local function close(key, found, scope)
    local b = found[scope]
    if not b then return false end
    redis.call('HDEL', key, scope)
    found[scope] = nil
    if is_open(b) then closed[#closed + 1] = scope end
    return is_open(b)
end

-- Have the other failing scopes probed at once: the one that covered them is closed.
local function probe_others(key, found, mine)
    for scope, b in pairs(found) do
        if scope ~= mine and is_open(b) and b.why == 'failure' then
            b.wait = now
            set_breaker(key, scope, b)
        end
    end
end

local function close_institution()
    if close(breakers_key, all, institution) then
        unpark(due_key, prefix .. ':parked:' .. institution)
        look_first(institution)
    end
end

if result == 'answer' then
    if kind == 'check' then
        close(endpoints_key, kinds, 'check ' .. institution)
        redis.call('DEL', checked)
    elseif institution ~= '' then
        if kind == 'calls' or (all[institution] and all[institution].why == 'pause') then close_institution() end
        if kind == 'queue' then
            if close(endpoints_key, kinds, 'queue ' .. institution) then look_first(institution) end
            if close(endpoints_key, kinds, 'queue ') then
                probe_others(endpoints_key, kinds, 'queue ' .. institution)
                look_everywhere()
            end
        end
    end
    if close(breakers_key, all, '') then
        probe_others(breakers_key, all, institution)
        look_everywhere()
    end
    return answer()
end

-- Without a token no request can be made for any institution, so this counts as a failed login.
if result == 'failure' and institution ~= '' and not has_token(token_key, now) then result = 'login' end
if result == 'login' then
    if has_token(token_key, now) then return answer() end
    institution, kind = '', 'calls'
end

local function open(key, found, scope, failures, wait)
    local b = found[scope] or {failures = failures, since = 0, wait = 0, why = result}
    if not is_open(b) then
        b.since = now
        opened[#opened + 1] = scope
    end
    b.why, b.wait = result, math.max(b.wait, now + wait)
    found[scope] = b
    set_breaker(key, scope, b)
end

if kind == 'check' then
    redis.call('SADD', checked, checked_call)
    redis.call('EXPIRE', checked, 600)
    local calls, scope = redis.call('SCARD', checked), 'check ' .. institution
    local b = kinds[scope] or {since = 0, wait = 0, why = result}
    b.failures, kinds[scope] = calls, b
    if calls >= together and not is_open(b) then open(endpoints_key, kinds, scope, calls, first_probe) end
    set_breaker(endpoints_key, scope, b)
    return answer()
end

local key, found, scope = breakers_key, all, institution
-- A pause is asked for the institution, whatever the endpoint.
if kind == 'queue' and result ~= 'pause' then key, found, scope = endpoints_key, kinds, 'queue ' .. institution end
local mine = found[scope] or {failures = 0, since = 0, wait = 0, why = result}
mine.failures = mine.failures + 1
if not is_open(mine) then
    if mine.failures == 1 or math.abs(now - mine.wait) >= 4 * within then mine.wait = now end -- it begins to fail
    mine.why = result
end
local began = mine.wait
found[scope] = mine
if result == 'pause' then
    open(key, found, scope, 1, tonumber(pause_ms))
elseif not is_open(mine) and (result == 'login' or mine.failures >= tonumber(failures_that_open)) then
    open(key, found, scope, mine.failures, first_probe)
end
set_breaker(key, scope, mine)
if result ~= 'failure' or institution == '' then return answer() end

-- Tell whether a kind of endpoint has failed for an institution since it last answered for it.
local function is_failing(others, pattern)
    for other, b in pairs(others) do
        local is_such = b.why == 'failure' and string.match(other, pattern)
        if is_such and (is_open(b) or math.abs(now - b.wait) < 4 * within) then return true end
    end
    return false
end

local answered = now - num(answered_ms_ago, math.huge)

-- Return how many institutions' breakers of a kind are open: all, and those that opened together, without an answer since.
-- The last one has.
local function count(others, pattern)
    local failing, lately = 0, 0
    for other, b in pairs(others) do
        if string.match(other, pattern) and is_open(b) and b.why == 'failure' then
            failing = failing + 1
            if math.abs(now - b.since) < within and b.since >= answered then lately = lately + 1 end
        end
    end
    return failing, lately
end

-- Institutions that fail together show that a kind of endpoint fails for all of them. If no other kind works either, it is
-- the service that fails.
local QUEUES, CALLS = '^queue (.+)$', '^.+$'
local acted_for = #ARGV - rest + 1
local is_everywhere, are_all, is_unanswered = false, false, #opened > 0 and began >= answered
if #opened > 0 then
    local failing, lately = count(found, kind == 'queue' and QUEUES or CALLS)
    are_all = acted_for > 0 and failing >= acted_for
    is_everywhere = are_all or (lately >= together and is_unanswered)
end
local is_away
if kind == 'queue' then
    -- It is probed at once, since others may answer.
    if is_everywhere and not is_open(kinds['queue ']) then
        open(endpoints_key, kinds, 'queue ', mine.failures, are_all and first_probe or 0)
        is_away = is_failing(all, CALLS) or redis.call('ZCARD', live_key) == 0
    end
else
    local queues = kinds['queue ']
    -- The second: queues may fail first, and calls later, perhaps of one institution only, because others have none.
    local are_both = is_open(queues) and (queues.since >= answered or is_unanswered)
    is_away = are_both or (is_everywhere and is_failing(kinds, QUEUES))
end
if is_away and not is_open(all['']) then open(breakers_key, all, '', mine.failures, are_all and first_probe or 0) end
return answer()

-- The breakers (`callkeeper.calls.store.breakers`). One hash has those of the account ('') and of institutions, as in
-- members. Another one has those of kinds of endpoints: 'queue ' for all institutions, 'queue <institution>' for one,
-- 'check <institution>' for its checks. The value is 'failures since wait why'. `since` is 0 while closed. `wait` is
-- the time of the next probe, or when it began to fail while closed. An unreadable breaker counts as closed.
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

-- Make parked members due again. MAX: one that is claimed meanwhile keeps its lease.
local function unpark(due, parked)
    redis.call('ZUNIONSTORE', due, 2, due, parked, 'AGGREGATE', 'MAX')
    redis.call('DEL', parked)
end

-- Take what is due: a lease and a nonce each.
-- KEYS: due, wake marker, service, pauses, epoch, attended, RQ queue
-- ARGV: now, prefix, how many, lease in ms, nonce, farthest legal due time in ms from now, a shift starts ('1' or ''),
--       ms between two probes of a service that is away, for how many ms others may count on this shift ('' not at all)
-- Returns {now, epoch, since when it is known, ms the service's gate stays shut, failures in a row, pauses, ms until the next
-- member is due (-1 if none is), jobs that wait, [member, nonce, checks, epoch changed, failures, record, ms since it was due, [note id, note, ...]] ...}.
-- A claim whose answer was lost costs its members one lease.
local now = now_ms()
local prefix = ARGV[2]
local current = epoch()
if ARGV[7] == '1' then redis.call('DEL', KEYS[2]) end
if ARGV[9] ~= '' then redis.call('SET', KEYS[6], '1', 'PX', ARGV[9]) end

-- A Redis that was restarted, replaced or emptied is new from the first claim that sees it.
local known = redis.call('HMGET', KEYS[5], 'id', 'since')
local since = tonumber(known[2] or '0')
if known[1] ~= current or since > now then
    since = now
    redis.call('HSET', KEYS[5], 'id', current, 'since', since)
end

-- Redis's clock was set back: what looks far away is due.
local far = redis.call('ZREVRANGEBYSCORE', KEYS[1], '+inf', '(' .. (now + tonumber(ARGV[6])), 'LIMIT', 0, 100)
for _, member in ipairs(far) do redis.call('ZADD', KEYS[1], now, member) end

-- While the service is away nothing is claimed; then one member at a time, until a request succeeds.
local gate = redis.call('HMGET', KEYS[3], 'until', 'failures', 'open', 'probe')
local limit = tonumber(ARGV[3])
local left = math.max(0, tonumber(gate[1] or '0') - now, tonumber(gate[4] or '0') - now)
if left > 0 then
    limit = 0
elseif gate[3] and limit > 0 then
    limit = 1
    redis.call('HSET', KEYS[3], 'probe', now + tonumber(ARGV[8]))
end

local answer = {now, current, since, left, tonumber(gate[2] or '0'), redis.call('HGETALL', KEYS[4]), -1, redis.call('LLEN', KEYS[7])}
local due = {}
if limit > 0 then due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'WITHSCORES', 'LIMIT', 0, limit) end
for n = 1, #due, 2 do
    local member, late = due[n], now - math.floor(tonumber(due[n + 1]))
    local item = prefix .. ':item:' .. member
    local kept = redis.call('HMGET', item, 'rec', 'checks', 'epoch', 'verify', 'failures')
    local notes = redis.call('HGETALL', prefix .. ':inbox:' .. member)
    if not kept[1] and #notes == 0 then
        redis.call('ZREM', KEYS[1], member)
    else
        local checks = tonumber(kept[2] or '0')
        local verify = kept[4] and 1 or 0
        if kept[3] and kept[3] ~= current then
            -- The last writes may be lost with the old server: one check more may have been sent than was counted.
            verify = 1
            checks = math.min(checks + 1, 20)
            redis.call('HSET', item, 'checks', checks, 'verify', '1')
        end
        local nonce = ARGV[5] .. ':' .. n
        redis.call('HSET', item, 'nonce', nonce, 'epoch', current)
        redis.call('ZADD', KEYS[1], now + tonumber(ARGV[4]), member)
        answer[#answer + 1] = {member, nonce, checks, verify, tonumber(kept[5] or '0'), kept[1] or '', late, notes}
    end
end
local first = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
if first[2] then answer[7] = math.max(0, left, math.floor(tonumber(first[2])) - now) end
return answer

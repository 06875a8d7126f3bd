-- Add a process's figures to the totals, and record that it is alive. A repetition adds nothing, however late.
-- KEYS: figures, processes, process, claimer, counted, counted_before, lately, running, hours_since,
--       survey, unstarted
-- ARGV: clock, minute, number, name, kind, memory, minute_kept_s, kept_s, alive_s, number_kept_s, version, rules, own_ms,
--       cpu, doing, vanished_kept_s, is_last, hours, hours_kept_s, day_bytes, slots, hits, hits_kept_s, rest...
-- `claimer` has the number of the process's last batch, `counted` when each thing was counted last, as '', when any
-- process wrote last, and as 'web_back', when a web process began after none. `counted_before` has the same from before the
-- clock was set back and, as '', by how much. `lately` has rows and last words, `running` the processes that have not shut
-- down in order. `minute` is the prefix of the minutes' keys, `number` that of the batch. The totals are kept for `kept_s`
-- after the last write. `rules` is a digest, `own_ms` the process's own clock, `cpu` its share of a core, `doing` what it
-- does now, `is_last` '1' if the process shuts down. A process that vanished is remembered for `vanished_kept_s`.
-- `rest` are (field, value) pairs. A field without a sign is a figure. '+' adds to a row, '-' ends one, '=' keeps last words.
-- '#' adds to the sums of an institution's hour: slots and increments in turn, in a string of `day_bytes` a day with `slots`
-- an hour. '~' adds to the hits of a rule on this day. `hours` and `hits` are prefixes of keys.
-- '*' is an answer that was seen, `assumption|answer|institution`, with the value `n|shape`. `survey` keeps of each answer
-- how often it was seen, when first and last, and since when at each of at most MOST_PLACES institutions.
-- Returns 1, or 0 for a repetition.
local MOST_PLACES = 8
local now = now_ms()
local function see(what, value)
    local assumption, answer, institution = string.match(what, '^([^|]*)|([^|]*)|(.*)$')
    local n, shape = string.match(value, '^(%d+)|(.*)$')
    local field = assumption .. '|' .. answer
    local known = redis.call('HGET', survey_key, field)
    known = known and cjson.decode(known) or {n = 0, first = now, at = {}}
    known.n = known.n + tonumber(n)
    known.last = now
    if shape ~= '' then known.shape = shape end
    local places = 0
    for _ in pairs(known.at) do places = places + 1 end
    if institution ~= '' and not known.at[institution] and places < MOST_PLACES then known.at[institution] = now end
    redis.call('HSET', survey_key, field, cjson.encode(known))
end
local running = kind .. ' ' .. name
if is_last == '1' then
    -- Whom it replaced stays replaced: one process of its kind that had vanished before it began.
    local since = num(redis.call('HGET', process_key, 'since'), 0)
    for _, other in ipairs(redis.call('ZRANGEBYSCORE', running_key, '-inf', '(' .. since)) do
        if other ~= running and string.sub(other, 1, #kind + 1) == kind .. ' ' then
            redis.call('ZREM', running_key, other)
            break
        end
    end
    redis.call('ZREM', processes_key, name)
    redis.call('ZREM', running_key, running)
    redis.call('DEL', process_key)
end
if tonumber(number) <= tonumber(redis.call('HGET', claimer_key, 'batch') or '0') then return 0 end
redis.call('HSET', claimer_key, 'batch', number)
redis.call('EXPIRE', claimer_key, number_kept_s)

-- If Redis's clock was set back, everything that incidents follow from is moved back as far. Otherwise, for as long, what
-- failed before would be later than what goes well now. All of it is moved, because its order must stay. What was counted
-- last may be much, so it is only put aside, and readers move it.
local last_write = num(redis.call('HGET', counted_key, ''), now)
local back = last_write + 1000 - now -- each process writes once a second, so about a second has passed
local function moved(stored)
    if tonumber(stored) then return stored - back end
    local sight = cjson.decode(stored)
    sight.first, sight.last = sight.first - back, sight.last - back
    for place, at in pairs(sight.at) do sight.at[place] = at - back end
    return cjson.encode(sight)
end
local function put_aside()
    local before = num(redis.call('HGET', counted_before_key, ''), nil)
    if before then -- set back twice within the hour
        local stored = redis.call('HGETALL', counted_key)
        for n = 2, #stored, 2 do stored[n] = stored[n] + before end
        for n = 1, #stored, 1000 do
            redis.call('HSET', counted_before_key, unpack(stored, n, math.min(n + 999, #stored)))
        end
        redis.call('UNLINK', counted_key)
    else
        redis.call('RENAME', counted_key, counted_before_key)
    end
    redis.call('HSET', counted_before_key, '', back + (before or 0))
    redis.call('EXPIRE', counted_before_key, minute_kept_s)
end
local function move_minutes()
    local last = math.floor((now + back) / 60000)
    local by = last - math.floor(now / 60000)
    for at = last - math.ceil(minute_kept_s / 60), last do
        local from, to = minute .. string.format('%d', at), minute .. string.format('%d', at - by)
        if redis.call('EXISTS', from) == 1 then redis.call('RENAME', from, to) end
    end
end
local function move_back()
    put_aside()
    move_minutes() -- or they would be counted again when they come again
    for _, key in ipairs({unstarted_key, survey_key}) do
        local stored = redis.call('HGETALL', key)
        for n = 1, #stored, 2 do
            local is_read, value = pcall(moved, stored[n + 1])
            if is_read then redis.call('HSET', key, stored[n], value) end
        end
    end
    for _, other in ipairs(redis.call('ZRANGE', processes_key, 0, -1)) do
        local its_key = string.sub(process_key, 1, -#name - 1) .. other
        if redis.call('HEXISTS', its_key, 'since') == 1 then redis.call('HINCRBY', its_key, 'since', -back) end
        redis.call('ZINCRBY', processes_key, -back, other)
    end
    for _, other in ipairs(redis.call('ZRANGE', running_key, 0, -1)) do redis.call('ZINCRBY', running_key, -back, other) end
end
if last_write - now > 1000 then move_back() end -- of what is counted within a second, the order is unknown anyway
redis.call('HSET', counted_key, '', now)
redis.call('EXPIRE', counted_key, minute_kept_s)
local alive_ms = tonumber(alive_s) * 1000
redis.call('ZREMRANGEBYSCORE', processes_key, '-inf', now - alive_ms)
redis.call('ZREMRANGEBYSCORE', running_key, '-inf', now - vanished_kept_s * 1000)
if is_last ~= '1' then
    local is_back = kind == 'web'
    for _, alive in ipairs(is_back and redis.call('ZRANGEBYSCORE', running_key, '(' .. now - alive_ms, '+inf') or {}) do
        if string.sub(alive, 1, 4) == 'web ' then is_back = false end
    end
    if is_back then redis.call('HSET', counted_key, 'web_back', now) end
    redis.call('HSET', process_key, 'kind', kind, 'memory', memory, 'at', now, 'version', version, 'rules', rules,
        'ahead', own_ms - now, 'cpu', cpu, 'doing', doing)
    redis.call('HSETNX', process_key, 'since', now)
    redis.call('PEXPIRE', process_key, alive_ms)
    redis.call('ZADD', processes_key, now, name)
    redis.call('ZADD', running_key, now, running)
    redis.call('EXPIRE', running_key, vanished_kept_s)
end
if #ARGV < rest then return 1 end
local minute = minute .. string.format('%d', math.floor(now / 60000))
local day, hour = string.format('%d', math.floor(now / 86400000)), math.floor(now / 3600000) % 24
local has_new_day, has_hits = false, false
local zeros
local function sum_up(institution, slots_and_increments)
    local of_day = hours .. day .. ':' .. institution
    if redis.call('EXISTS', of_day) == 0 then
        -- All its bytes at once: Redis doubles the memory of a string that grows.
        zeros = zeros or string.rep('\0', day_bytes)
        redis.call('SET', of_day, zeros, 'EX', hours_kept_s + 86400)
        has_new_day = true
    end
    local increments = {}
    for slot, by in string.gmatch(slots_and_increments, '(%d+) (%d+)') do
        for _, part in ipairs({'INCRBY', 'u24', '#' .. (hour * slots + slot), by}) do
            increments[#increments + 1] = part
        end
    end
    redis.call('BITFIELD', of_day, 'OVERFLOW', 'SAT', unpack(increments))
end
for n = rest, #ARGV, 2 do
    local sign, field = string.match(ARGV[n], '^([-+=#~*])(.*)$')
    if sign == '+' then
        redis.call('HINCRBY', lately_key, field, ARGV[n + 1])
    elseif sign == '-' then
        redis.call('HDEL', lately_key, field)
    elseif sign == '#' then
        sum_up(field, ARGV[n + 1])
    elseif sign == '~' then
        redis.call('HINCRBY', hits .. day, field, ARGV[n + 1])
        has_hits = true
    elseif sign == '*' then
        see(field, ARGV[n + 1])
    elseif sign == '=' then
        redis.call('HSET', lately_key, field .. '=', ARGV[n + 1])
    else
        redis.call('HINCRBY', figures_key, ARGV[n], ARGV[n + 1])
        redis.call('HINCRBY', minute, ARGV[n], ARGV[n + 1])
        redis.call('HSET', counted_key, ARGV[n], now)
    end
end
if has_new_day then
    redis.call('SET', hours_since_key, now, 'NX')
    redis.call('EXPIRE', hours_since_key, hours_kept_s)
end
if has_hits then redis.call('EXPIRE', hits .. day, hits_kept_s) end
redis.call('EXPIRE', figures_key, kept_s)
redis.call('EXPIRE', minute, minute_kept_s)
redis.call('EXPIRE', lately_key, kept_s)
redis.call('EXPIRE', survey_key, kept_s)
return 1

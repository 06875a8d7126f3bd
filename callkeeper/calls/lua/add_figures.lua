-- Add a process's figures to the totals, and record that it is alive. A repetition adds nothing, however late.
-- KEYS: figures, processes, process, claimer, counted, lately, running, hours_since, survey, unstarted,
--       pauses_restored
-- ARGV: clock, minute, number, name, kind, memory, minute_kept_s, kept_s, alive_s, number_kept_s, version, rules,
--       ahead_ms, up_ms, cpu, doing, vanished_kept_s, is_last, hours, hours_kept_s, day_bytes, slots, hits,
--       hits_kept_s, settings, rest...
-- `claimer` has the number of the process's last batch, `counted` when each thing was counted last, as '', when any
-- process wrote last, and as 'began', when a web process or a worker reported after a time without any. `lately` has rows
-- and last words, `running` the processes that have not shut down in order. `minute` is the prefix of the minutes' keys,
-- `number` that of the batch. The totals are kept for `kept_s` after the last write. `rules` is a digest, `settings` has
-- those of settings by variable, as JSON, '' if the process reports none, `ahead_ms` says by how much the process's
-- clock is ahead of this one, '' if it does not know yet, `up_ms` how long it has run, `cpu` its share of a core,
-- `doing` what it does now, `is_last` '1' if the process shuts down. A process that vanished is remembered for
-- `vanished_kept_s`.
-- `rest` are (field, value) pairs. A field without a sign is a figure. '+' adds to a row, '-' ends one, '=' keeps last
-- words. '#' adds to the sums of an institution's hour: slots and increments in turn, in a string of `day_bytes` a day
-- with `slots` an hour. '~' adds to the hits of a rule on this day. `hours` and `hits` are prefixes of keys.
-- '*' is an answer that was seen, `assumption|answer|institution`, with the value `n|shape`. `survey` keeps of each answer
-- how often it was seen, when first and last, and since when at each of at most MOST_PLACES institutions, a number that is
-- put in front.
-- Returns 1, or 0 for a repetition; and the time: only the process knows how long this command waited before it ran.
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
local function replace_one(before) -- each process replaces one of its kind that had vanished before it began
    if redis.call('HEXISTS', process_key, 'replaced') == 1 then return end
    for _, other in ipairs(redis.call('ZRANGEBYSCORE', running_key, '-inf', '(' .. before)) do
        if other ~= running and string.sub(other, 1, #kind + 1) == kind .. ' ' then
            redis.call('HSET', process_key, 'replaced', 1)
            return redis.call('ZREM', running_key, other)
        end
    end
end
if is_last == '1' then
    replace_one(num(redis.call('HGET', process_key, 'since'), 0))
    redis.call('ZREM', processes_key, name)
    redis.call('ZREM', running_key, running)
    redis.call('DEL', process_key)
end
if tonumber(number) <= tonumber(redis.call('HGET', claimer_key, 'batch') or '0') then return {0, now} end
redis.call('HSET', claimer_key, 'batch', number)
redis.call('EXPIRE', claimer_key, number_kept_s)

-- If Redis's clock was set back, everything that incidents follow from is moved back as far. Otherwise, for as long, what
-- failed before would be later than what goes well now. All of it is moved, because its order must stay.
local last_write = num(redis.call('HGET', counted_key, ''), now)
local set_back_ms = last_write + 1000 - now -- each process writes once a second, so about a second has passed
local function moved(stored)
    if tonumber(stored) then return stored - set_back_ms end
    local sight = cjson.decode(stored)
    sight.first, sight.last = sight.first - set_back_ms, sight.last - set_back_ms
    for place, at in pairs(sight.at) do sight.at[place] = at - set_back_ms end
    return cjson.encode(sight)
end
local function move_hash(key)
    local stored = redis.call('HGETALL', key)
    for n = 2, #stored, 2 do
        local is_read, value = pcall(moved, stored[n])
        if is_read then stored[n] = value end
    end
    for n = 1, #stored, 1000 do redis.call('HSET', key, unpack(stored, n, math.min(n + 999, #stored))) end
end
local function move_minutes()
    local last, present = math.floor(last_write / 60000), math.floor((last_write - set_back_ms) / 60000)
    if present == last then return end
    for at = last - math.ceil(minute_kept_s / 60), last do
        local from, to = minute .. string.format('%d', at), minute .. string.format('%d', at - last + present)
        if redis.call('EXISTS', from) == 1 then redis.call('RENAME', from, to) end
    end
end
local function move_back()
    for _, key in ipairs({counted_key, unstarted_key, survey_key}) do move_hash(key) end
    move_minutes() -- or they would be counted again when they come again
    if redis.call('HEXISTS', pauses_restored_key, 'at') == 1 then
        redis.call('HINCRBY', pauses_restored_key, 'at', -set_back_ms)
    end
    for _, other in ipairs(redis.call('ZRANGE', processes_key, 0, -1)) do
        local its_key = string.sub(process_key, 1, -#name - 1) .. other
        if redis.call('HEXISTS', its_key, 'since') == 1 then redis.call('HINCRBY', its_key, 'since', -set_back_ms) end
        redis.call('ZINCRBY', processes_key, -set_back_ms, other)
    end
    for _, other in ipairs(redis.call('ZRANGE', running_key, 0, -1)) do
        redis.call('ZINCRBY', running_key, -set_back_ms, other)
    end
end
if last_write - now > 1000 then move_back() end -- of what is counted within a second, the order is unknown anyway
redis.call('HSET', counted_key, '', now)
redis.call('EXPIRE', counted_key, minute_kept_s)
local alive_ms = tonumber(alive_s) * 1000
redis.call('ZREMRANGEBYSCORE', processes_key, '-inf', now - alive_ms)
redis.call('ZREMRANGEBYSCORE', running_key, '-inf', now - vanished_kept_s * 1000)
if is_last ~= '1' then
    local is_first = kind == 'web' or kind == 'worker'
    for _, alive in ipairs(is_first and redis.call('ZRANGEBYSCORE', running_key, '(' .. now - alive_ms, '+inf') or {}) do
        if string.sub(alive, 1, #kind + 1) == kind .. ' ' then is_first = false end
    end
    if is_first then -- without web no push came, and without a worker nobody looked whether one had
        redis.call('HSET', counted_key, 'began', now)
        for _, row in ipairs(redis.call('HKEYS', lately_key)) do
            if string.sub(row, 1, 13) == 'calls_pushed|' then redis.call('HDEL', lately_key, row) end
        end
    end
    redis.call('HSET', process_key, 'kind', kind, 'memory', memory, 'at', now, 'version', version, 'rules', rules,
        'ahead', ahead_ms, 'cpu', cpu, 'doing', doing, 'settings', settings)
    redis.call('HSETNX', process_key, 'since', now - up_ms)
    replace_one(math.min(redis.call('HGET', process_key, 'since'), now - alive_ms))
    redis.call('PEXPIRE', process_key, alive_ms)
    redis.call('ZADD', processes_key, now, name)
    redis.call('ZADD', running_key, now, running)
    redis.call('EXPIRE', running_key, vanished_kept_s)
end
if #ARGV < rest then return {1, now} end
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
return {1, now}

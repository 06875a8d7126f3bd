-- A Redis that was restarted or replaced, lost its data, or has older data.
-- Tell whether some process knew other data in Redis than `born` names, and remember it.
local function knew_other_data(epoch_key, born, last_born)
    if last_born ~= '' and last_born ~= born then redis.call('HSET', epoch_key, 'replaced', '1') end
    return redis.call('HEXISTS', epoch_key, 'replaced') == 1
end

-- Tell whether the data in Redis lacks more than an ordinary failover loses. `claimed_ms` is how many ms workers had claimed
-- when it was written, `last_claimed_ms` the same of the data that a process saw last. It grows whatever the clock does, so
-- only older data has less of it.
local function is_older_data(claimed_ms, last_claimed_ms) return tonumber(last_claimed_ms) - claimed_ms > 60000 end

-- Write back the pauses that a process saw last, if this Redis has lost its data or is an older one. `born` names the
-- data in Redis: it changes when that was lost or may be older. Each place is restored once, so that a pause that was
-- lifted since does not come back. A pause of older data that the process did not see was lifted since: it stays in
-- force, and is remembered under `again:` for the incident.
local function restore_pauses(pauses, history, restored, born, last_born, is_empty, is_older, remembered, now)
    if last_born == '' or last_born == born then return end
    local seen, was_seen = remembered == '' and {} or cjson.decode(remembered), {}
    local function begin()
        if redis.call('HGET', restored, 'born') == born then return end
        redis.call('DEL', restored)
        redis.call('HSET', restored, 'born', born, 'at', now, 'is_empty', is_empty and '1' or '')
    end
    if is_empty or is_older then begin() end
    for _, one in ipairs(seen) do
        was_seen[one[1]] = true
        if redis.call('HEXISTS', pauses, one[1]) == 0 then
            begin()
            if redis.call('HSETNX', restored, 'place:' .. one[1], '1') == 1 then
                redis.call('HSET', pauses, one[1], one[2])
                redis.call('LPUSH', history, one[3])
            end
        end
    end
    local stored = is_older and not is_empty and redis.call('HGETALL', pauses) or {}
    for n = 1, #stored, 2 do
        if not was_seen[stored[n]] then redis.call('HSET', restored, 'again:' .. stored[n], stored[n + 1]) end
    end
end

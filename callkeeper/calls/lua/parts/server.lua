-- Which server and which data a claim meets, and what was lost before (claim.lua).
local MOST_CLAIMED = 20000 -- ms that a claim adds to `claimed_ms` at the most, if the clock jumps ahead

-- A Redis that was restarted, replaced or emptied counts as new from the first claim that sees it. Writes of the old
-- one after its last known claim may be lost. `new_name` is for its data, if those are new or older ones.
-- Returns {id, since: when it was first seen, before: the id of the one before ('' for none), lost_from, lost_until, born,
-- claimed_ms, seen: the time of the last claim, is_older}; nil is what nobody has written.
local function see_server(now, new_name)
    local id = epoch()
    local known = redis.call('HMGET', epoch_key, 'id', 'since', 'seen', 'before', 'lost_from', 'lost_until', 'born',
        'claimed_ms')
    local s = {
        id = id, since = num(known[2], now), seen = num(known[3], now), before = known[4], lost_from = known[5],
        lost_until = known[6], born = known[7] or '', claimed_ms = num(known[8], 0),
    }
    s.is_older = known[1] and is_older_data(s.claimed_ms, last_claimed_ms)
    if known[1] ~= id or (s.is_older and last_born == s.born) then -- the second: imported while the server ran
        s.since, s.before, s.lost_from, s.lost_until = now, known[1] or '', known[3] or '', ''
        local ended = now
        -- The clocks of two servers may differ by hours. The claimer's own clock tells how much time has passed, except
        -- for the seconds in which its Redis client repeated this claim.
        local last_ms = tonumber(last_epoch_ms)
        if last_epoch == s.before then ended = math.max(last_ms, math.min(now, last_ms + 5000)) end
        if known[1] and ended >= num(known[3], 0) then s.lost_until = string.format('%.0f', ended) end
        if known[1] or s.born == '' then s.born = new_name end -- a web process may have named the data of an emptied one
        redis.call('HSET', epoch_key, 'id', id, 'since', s.since, 'before', s.before, 'lost_from', s.lost_from,
            'lost_until', s.lost_until, 'born', s.born)
    elseif s.since > now then
        s.since = now
        redis.call('HSET', epoch_key, 'since', now)
    end
    s.claimed_ms = math.max(s.claimed_ms, tonumber(last_claimed_ms)) + math.max(0, math.min(now - s.seen, MOST_CLAIMED))
    redis.call('HSET', epoch_key, 'seen', now, 'claimed_ms', s.claimed_ms)
    return s
end

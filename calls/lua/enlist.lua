-- Make due what should be in a schedule and is in none, whatever was lost or has expired.
-- KEYS: due, live calls, breakers, attention, epoch (it has the time of the last search)
-- ARGV: now, prefix, id of a note that asks for a full listing, its content, ms between two searches for calls, the
--       institutions we act for, as in members ...
-- An institution that is missing gets the note. What was parked (claim.lua) returns unless its institution's breaker is
-- open. A live call is in no schedule if it is neither due nor parked, and does not wait for a person.
local now, prefix = now_ms(), ARGV[2]
local away = breakers(KEYS[3])

-- Return the key of what is parked for an institution, after making that due if the breaker is not open.
local function parked(institution)
    local key = prefix .. ':parked:' .. institution
    if not is_open(away[institution]) and redis.call('EXISTS', key) == 1 then unpark(KEYS[1], key) end
    return key
end

for n = 6, #ARGV do
    local member = 'i:' .. ARGV[n]
    local key = parked(ARGV[n])
    if not redis.call('ZSCORE', KEYS[1], member) and not redis.call('ZSCORE', key, member) then
        leave_note(prefix, KEYS[1], member, ARGV[3], ARGV[4], now, true)
    end
end

local since = now - num(redis.call('HGET', KEYS[5], 'searched'), 0)
if since >= 0 and since < tonumber(ARGV[5]) then return end
redis.call('HSET', KEYS[5], 'searched', now)
for _, member in ipairs(redis.call('ZDIFF', 2, KEYS[2], KEYS[1])) do
    local key = parked(string.match(member, '^c:([^:]*)') or '')
    if not redis.call('ZSCORE', key, member) and redis.call('HGET', KEYS[4], member) ~= 'parked' then
        make_due(KEYS[1], prefix .. ':item:' .. member, member, now)
    end
end

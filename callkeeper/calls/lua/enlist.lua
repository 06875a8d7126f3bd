-- Make due what should be in a schedule and is in none, whatever was lost or has expired.
-- PARTS: notes, breakers
-- KEYS: due, live, breakers, attention, epoch
-- ARGV: clock, prefix, note_id, note, search_every_ms, rest...
-- `epoch` has the time of the last search for calls. The note asks for a full listing. `rest` are the institutions that we
-- act for, as in members.
-- An institution that is missing gets the note. What was parked (claim.lua) returns unless its institution's breaker is
-- open. A live call is in no schedule if it is neither due nor parked, and does not wait for a person.
local now = now_ms()
local away = breakers(breakers_key)

-- Return the key of what is parked for an institution, after making that due if the breaker is not open.
local function parked(institution)
    local key = prefix .. ':parked:' .. institution
    if not is_open(away[institution]) and redis.call('EXISTS', key) == 1 then unpark(due_key, key) end
    return key
end

for n = rest, #ARGV do
    local member = 'i:' .. ARGV[n]
    local key = parked(ARGV[n])
    if not redis.call('ZSCORE', due_key, member) and not redis.call('ZSCORE', key, member) then
        leave_note(prefix, due_key, member, note_id, note, now, true)
    end
end

local since = now - num(redis.call('HGET', epoch_key, 'searched'), 0)
if since >= 0 and since < tonumber(search_every_ms) then return end
redis.call('HSET', epoch_key, 'searched', now)
for _, member in ipairs(redis.call('ZDIFF', 2, live_key, due_key)) do
    local key = parked(string.match(member, '^c:([^:]*)') or '')
    if not redis.call('ZSCORE', key, member) and redis.call('HGET', attention_key, member) ~= 'parked' then
        make_due(due_key, prefix .. ':item:' .. member, member, now)
    end
end

-- Write and keep the claim: a booking, an intention, a "sent". Renews the lease.
-- KEYS: item, inbox, due, trail, changes, pauses
-- ARGV: now, member, nonce, write number, lease in ms, record ('' to leave it), checks expected and checks then ('' unless
--       a check is booked), refuse while notes are unread ('1' or ''), refuse under a pause ('' no, 'any', 'all' only one
--       of that scope), institution, prefix of the outbox ('' for none), count of folded notes, their (id, note)
--       pairs, trail entries ...
-- Returns {1}, or {0, why}. A write may be repeated at any time, also after later writes of the same holder. The last
-- write's number returns its answer again; a lower number changes nothing and returns {0, 'late'}.
local now = now_ms()
local held = redis.call('HMGET', KEYS[1], 'nonce', 'kept', 'checks', 'epoch')
if held[1] ~= ARGV[3] or held[4] ~= epoch() then return {0, 'lease'} end
local prefix = ARGV[3] .. '/'
if held[2] and string.sub(held[2], 1, #prefix) == prefix then
    local last, why = string.match(string.sub(held[2], #prefix + 1), '^(%d+)/?(.*)$')
    if tonumber(ARGV[4]) < tonumber(last) then return {0, 'late'} end
    if tonumber(ARGV[4]) == tonumber(last) then return why == '' and {1} or {0, why} end
end
local mark = prefix .. ARGV[4]
-- A refused write uses up its number too, because the reason may be gone when it is repeated.
local function refuse(why)
    redis.call('HSET', KEYS[1], 'kept', mark .. '/' .. why)
    return {0, why}
end
local count = tonumber(ARGV[13])
local ids = folded(KEYS[2], 14, count)
if ARGV[9] == '1' and redis.call('HLEN', KEYS[2]) > #ids then return refuse('notes') end
if ARGV[10] ~= '' then
    for _, pause in ipairs(redis.call('HMGET', KEYS[6], ARGV[11], '*')) do
        if pause and (ARGV[10] == 'any' or string.find(pause, '"scope":"all"', 1, true)) then return refuse('paused') end
    end
end
if ARGV[7] ~= '' then
    if num(held[3] or '0', CHECK_LIMIT) ~= tonumber(ARGV[7]) then return refuse('checks') end
    redis.call('HSET', KEYS[1], 'checks', ARGV[8])
end
redis.call('HSET', KEYS[1], 'kept', mark)
if ARGV[6] ~= '' then
    redis.call('HSET', KEYS[1], 'rec', ARGV[6])
    redis.call('HDEL', KEYS[1], 'verify')
    remove(KEYS[2], ids)
end
redis.call('ZADD', KEYS[3], now + tonumber(ARGV[5]), ARGV[2])
append(KEYS[4], 14 + 2 * count, KEYS[5], ARGV[2], ARGV[12])
return {1}

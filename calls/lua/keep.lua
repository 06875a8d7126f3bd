-- Write while holding: a booking, an intention, a "sent". Renews the lease.
-- KEYS: item, inbox, due, trail, changes, pauses
-- ARGV: now, member, nonce, write number, lease in ms, record ('' to leave it), checks expected and checks then ('' unless
--       a check is booked), refuse while notes are unread ('1' or ''), refuse under a pause ('' no, 'any', 'all' only one
--       of that scope), institution, prefix of the outbox ('' for none), count of folded notes, their (id, note)
--       pairs, trail entries ...
-- Returns {1}, or {0, why}. A repetition of the last write answers as it did.
local now = now_ms()
local held = redis.call('HMGET', KEYS[1], 'nonce', 'kept', 'checks')
if held[1] ~= ARGV[3] then return {0, 'lease'} end
local mark = ARGV[3] .. '/' .. ARGV[4]
if held[2] == mark then return {1} end
local count = tonumber(ARGV[13])
local ids = folded(KEYS[2], 14, count)
if ARGV[9] == '1' and redis.call('HLEN', KEYS[2]) > #ids then return {0, 'notes'} end
if ARGV[10] ~= '' then
    for _, pause in ipairs(redis.call('HMGET', KEYS[6], ARGV[11], '*')) do
        if pause and (ARGV[10] == 'any' or string.find(pause, '"scope":"all"', 1, true)) then return {0, 'paused'} end
    end
end
if ARGV[7] ~= '' then
    if tonumber(held[3] or '0') ~= tonumber(ARGV[7]) then return {0, 'checks'} end
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

-- Write and release the claim. Unread notes make the member due at once, unless the step failed and has to wait.
-- KEYS: item, inbox, due, trail, live, settled, attention, open calls of the institution, changes
-- ARGV: now, member, nonce, record ('' to leave it, '-' to delete the member), due ('' for never, else ms from now),
--       minimum of checks counted, failures, list ('live' | 'settled' | 'unconfirmed' or 'lost', which is settled until
--       a note reopens it | 'given up' | ''), seconds kept once settled, attention ('' for none, else the reason), voice id,
--       prefix of the outbox ('' for none), fingerprint of the entry that the queue is expected to have for it ('' if
--       unknown), prefix of the archive's outbox ('' for none), count of folded notes, their (id, note) pairs, trail
--       entries ...
-- Returns 1, 2 if the member is due at once because of unread notes, or 0 if another worker holds the claim. A
-- repetition of the last save returns 2, because claiming too early does no harm.
local now = now_ms()
local held = redis.call('HMGET', KEYS[1], 'nonce', 'saved', 'checks', 'settled', 'epoch')
if held[2] == ARGV[3] then return 2 end
if ARGV[4] == '-' and redis.call('EXISTS', KEYS[1]) == 0 then return 1 end
if held[1] ~= ARGV[3] or held[5] ~= epoch() then return 0 end
local member, record = ARGV[2], ARGV[4]
local count = tonumber(ARGV[15])
remove(KEYS[2], folded(KEYS[2], 16, count))
local unread = redis.call('HLEN', KEYS[2]) > 0
append(KEYS[4], 16 + 2 * count, KEYS[9], member, ARGV[12])

if record == '-' and not unread then
    redis.call('DEL', KEYS[1])
    redis.call('ZREM', KEYS[3], member)
    redis.call('ZREM', KEYS[5], member)
    redis.call('HDEL', KEYS[8], ARGV[11])
    redis.call('HDEL', KEYS[7], member)
    redis.call('EXPIRE', KEYS[4], 86400)
    return 1
end

redis.call('HSET', KEYS[1], 'saved', ARGV[3], 'failures', ARGV[7])
redis.call('HDEL', KEYS[1], 'nonce', 'kept', 'left')
if record == '-' then
    redis.call('HDEL', KEYS[1], 'rec')
elseif record ~= '' then
    redis.call('HSET', KEYS[1], 'rec', record)
    redis.call('HDEL', KEYS[1], 'verify')
end
if tonumber(ARGV[6]) > num(held[3], 0) then redis.call('HSET', KEYS[1], 'checks', ARGV[6]) end

if unread and record ~= '' then
    redis.call('ZADD', KEYS[3], now, member)
elseif ARGV[5] ~= '' then
    redis.call('ZADD', KEYS[3], now + tonumber(ARGV[5]), member)
else
    redis.call('ZREM', KEYS[3], member)
end

local kept_s = tonumber(ARGV[9])
local settles = ARGV[8] == 'settled' or ARGV[8] == 'unconfirmed' or ARGV[8] == 'lost'
if ARGV[8] == 'live' then
    redis.call('ZADD', KEYS[5], 'NX', now, member)
    if ARGV[13] ~= '' and redis.call('HEXISTS', KEYS[8], ARGV[11]) == 1 then
        redis.call('HSET', KEYS[8], ARGV[11], ARGV[13])
    end
    if held[4] then -- a note has reopened a settled call
        redis.call('ZREM', KEYS[6], member)
        redis.call('HDEL', KEYS[1], 'settled')
        redis.call('PERSIST', KEYS[1])
        redis.call('PERSIST', KEYS[4])
        held[4] = false
    end
elseif settles then
    redis.call('ZREM', KEYS[5], member)
    redis.call('ZADD', KEYS[6], 'NX', now, member)
    redis.call('HDEL', KEYS[8], ARGV[11])
    redis.call('HSET', KEYS[1], 'settled', ARGV[8] == 'settled' and '1' or ARGV[8])
end
-- A settled call expires, but not while it needs a person. One that is given up expires anyway. If there is an archive,
-- it expires only after it was archived (archived.lua).
local is_settled = settles or held[4]
local archive = is_settled and ARGV[14] or ''
if archive ~= '' then
    redis.call('HDEL', KEYS[1], 'archived')
    leave_note(archive, archive .. ':due', member, 'saved', ARGV[3], now, true)
end
if ARGV[8] == 'given up' or (is_settled and archive == '' and ARGV[10] == '') then
    redis.call('HSET', KEYS[1], 'over', now)
    redis.call('EXPIRE', KEYS[1], kept_s)
    redis.call('EXPIRE', KEYS[4], kept_s)
elseif is_settled then
    redis.call('PERSIST', KEYS[1])
    redis.call('PERSIST', KEYS[4])
end
if ARGV[10] ~= '' then
    redis.call('HSET', KEYS[7], member, ARGV[10])
else
    redis.call('HDEL', KEYS[7], member)
end
return (unread and record ~= '') and 2 or 1

-- The pacemaker's look: is there work that no shift has taken?
-- KEYS: due, wake marker, RQ queue, service, epoch (which says when a shift claimed last)
-- ARGV: now, how late in ms work has to be (below 0: how soon it is due), after how many ms without any shift one is started
-- Returns 1 if the caller has to enqueue a job, else 0.
local now = now_ms()
local since_shift = now - num(redis.call('HGET', KEYS[5], 'seen'), 0)
local is_quiet = since_shift < 0 or since_shift >= tonumber(ARGV[3])
if not is_quiet then
    -- While the service is left alone, what is due is not claimed.
    local gate = redis.call('HMGET', KEYS[4], 'until', 'probe')
    if now < math.max(num(gate[1], 0), num(gate[2], 0)) then return 0 end
    if #redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now - tonumber(ARGV[2]), 'LIMIT', 0, 1) == 0 then return 0 end
end
return ask_for_job(KEYS[2], KEYS[3])

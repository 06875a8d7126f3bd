-- For the watchdog: is there work that no shift has taken?
-- PARTS: waking, breakers
-- KEYS: due, wake, queue, breakers, epoch, endpoints
-- ARGV: clock, overdue_ms, quiet_ms
-- Work has to be overdue by `overdue_ms` (below 0: due within so many). After `quiet_ms` without a shift one is started.
-- `epoch` has the time of the last claim.
-- Returns 1 if the caller must enqueue a job, else 0.
local now = now_ms()
local since_shift = now - num(redis.call('HGET', epoch_key, 'seen'), 0)
local is_quiet = since_shift < 0 or since_shift >= tonumber(quiet_ms)
if not is_quiet then
    -- While the account's breaker is open, due work is not claimed, and a shift is needed only for the next probe.
    local away = breakers(breakers_key)
    local first = next_probe(away, breakers(endpoints_key)) or math.huge
    if not is_open(away['']) then
        first = math.min(first, num(redis.call('ZRANGE', due_key, 0, 0, 'WITHSCORES')[2], math.huge))
    end
    if first > now - tonumber(overdue_ms) then return 0 end
end
return ask_for_job(wake_key, queue_key)

-- For the watchdog: is there work that no shift has taken?
-- KEYS: due, wake marker, RQ queue, breakers of account and institutions, epoch (it has the time of the last claim),
--       breakers of kinds of endpoints
-- ARGV: now, how many ms overdue work has to be (below 0: how soon due), after how many ms without a shift one is
--       started
-- Returns 1 if the caller must enqueue a job, else 0.
local now = now_ms()
local since_shift = now - num(redis.call('HGET', KEYS[5], 'seen'), 0)
local is_quiet = since_shift < 0 or since_shift >= tonumber(ARGV[3])
if not is_quiet then
    -- While the account's breaker is open, due work is not claimed, and a shift is needed only for the next probe.
    local away = breakers(KEYS[4])
    local first = next_probe(away, breakers(KEYS[6])) or math.huge
    if not is_open(away['']) then
        first = math.min(first, num(redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2], math.huge))
    end
    if first > now - tonumber(ARGV[2]) then return 0 end
end
return ask_for_job(KEYS[2], KEYS[3])

-- The watchdog's look: is there work that no shift has taken?
-- KEYS: due, wake marker, RQ queue, breakers, epoch (which says when a shift claimed last), token
-- ARGV: now, how late in ms work has to be (below 0: how soon it is due), after how many ms without any shift one is started
-- Returns 1 if the caller has to enqueue a job, else 0.
local now = now_ms()
local since_shift = now - num(redis.call('HGET', KEYS[5], 'seen'), 0)
local is_quiet = since_shift < 0 or since_shift >= tonumber(ARGV[3])
if not is_quiet then
    -- While the account is left alone what is due is not claimed: a shift is needed for the next probe only.
    local away = breakers(KEYS[4])
    local first = next_probe(away, has_token(KEYS[6], now)) or math.huge
    if not is_open(away['']) then
        first = math.min(first, num(redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2], math.huge))
    end
    if first > now - tonumber(ARGV[2]) then return 0 end
end
return ask_for_job(KEYS[2], KEYS[3])

-- Take the probes of open breakers that are due: every few seconds each, less often if very many are open.
-- KEYS: breakers of account and institutions, breakers of kinds of endpoints
-- ARGV: now, ms between two probes, how many at most, ms of the longest pause that may be asked for
-- Returns which breakers to probe. A repetition finds them taken. If Redis's clock was set back, the time of a probe
-- lies too far ahead: then it is due when the longest wait that begins now is over.
local now = now_ms()
local taken = {}
local tried = probed(breakers(KEYS[1]), breakers(KEYS[2]))
local every = tonumber(ARGV[2]) * math.max(1, #tried / 30)
for _, probe in ipairs(tried) do
    local b, scope, key = probe.breaker, probe.scope, KEYS[probe.key]
    local longest = now + (b.why == 'pause' and tonumber(ARGV[4]) or every)
    if b.wait > longest or b.since > now then
        b.wait, b.since = math.min(b.wait, longest), math.min(b.since, now)
        set_breaker(key, scope, b)
    end
    if b.wait <= now and #taken < tonumber(ARGV[3]) then
        b.wait = now + every
        set_breaker(key, scope, b)
        taken[#taken + 1] = scope
    end
end
return taken

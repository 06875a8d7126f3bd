-- Take the probes of open breakers that are due: every few seconds each, less often if very many are open.
-- PARTS: breakers
-- KEYS: breakers, endpoints
-- ARGV: clock, every_ms, most, longest_pause_ms
-- Returns which breakers to probe. A repetition finds them taken. If Redis's clock was set back, the time of a probe
-- lies too far ahead: then it is due when the longest wait that begins now is over.
local now = now_ms()
local taken = {}
local tried = probed(breakers(breakers_key), breakers(endpoints_key))
local every = tonumber(every_ms) * math.max(1, #tried / 30)
for _, probe in ipairs(tried) do
    local b, scope, key = probe.breaker, probe.scope, ({breakers_key, endpoints_key})[probe.key]
    local longest = now + (b.why == 'pause' and tonumber(longest_pause_ms) or every)
    if b.wait > longest or b.since > now then
        b.wait, b.since = math.min(b.wait, longest), math.min(b.since, now)
        set_breaker(key, scope, b)
    end
    if b.wait <= now and #taken < tonumber(most) then
        b.wait = now + every
        set_breaker(key, scope, b)
        taken[#taken + 1] = scope
    end
end
return taken

-- Ask whether a barred scope may be tried. Two tries are at least `shortest_ms` apart.
-- PARTS: token
-- ARGV: clock, scope, shortest_ms, number
-- Returns 0 if so (no other caller may then until the next try), else after how many ms it may be tried; nil if it is not
-- barred.
local now = now_ms()
local known = refusal(scope, now)
if not known or known.till == 0 then return nil end
if now < known.till then return known.till - now end
if is_repetition('token_probe ' .. scope) then return tonumber(shortest_ms) end
known.till = next_try(known, now, tonumber(shortest_ms))
set_refusal(scope, known)
return 0

-- Ask whether barred scope ARGV[2] may be tried. ARGV[3]: the shortest wait between two tries, in ms. Returns 0 if so (no other caller may then until the next try), else after how many ms it may be tried; nil if
-- it is not barred.
local now = now_ms()
local known = refusal(ARGV[2], now)
if not known or known.till == 0 then return nil end
if now < known.till then return known.till - now end
if is_repetition('token_probe ' .. ARGV[2]) then return tonumber(ARGV[3]) end
known.till = next_try(known, now, tonumber(ARGV[3]))
set_refusal(ARGV[2], known)
return 0

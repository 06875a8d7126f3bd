-- Leave a note on a member, make it due, ask for a wake-up.
-- KEYS: due, wake marker, RQ queue, RQ workers, bell, attended
-- ARGV: now, prefix, member, note id, note, even if settled ('1' or ''), wake ('1' or '')
-- Returns {1 if the note was taken, 1 if the caller has to enqueue a job}.
local now = now_ms()
local taken = leave_note(ARGV[2], KEYS[1], ARGV[3], ARGV[4], ARGV[5], now, ARGV[6] == '1')
if taken == 0 or ARGV[7] ~= '1' then return {taken, 0} end
return {taken, call_somebody(KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6])}

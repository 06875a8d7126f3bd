-- Leave a note on a member, make it due, ask for a wake-up.
-- KEYS: due, wakeup, wake marker, RQ queue, number of the last statement, mark of this statement
-- ARGV: now, prefix, member, note id, note, even if settled ('1' or ''), wake ('1' or ''), 'wish' | 'statement' (a person's,
--       with and without an id of its own) | '' (any other note), seconds a statement's mark is kept, notes in an inbox
--       beyond which no statement is taken
-- Returns {1 if the note was taken, 2 if the inbox is full, 1 if the caller has to enqueue a job}.
local now = now_ms()
local note, is_wish = ARGV[5], ARGV[8] == 'wish'
local number
if ARGV[8] ~= '' then
    -- Milliseconds like the clock's, so that numbers still rise if this counter is lost. A repetition of a statement keeps
    -- its place: with a new number it would beat a correction that came in between, or be folded a second time.
    number = string.format('%.0f', math.max(now, num(redis.call('GET', KEYS[5]), 0) + 1))
    note = string.sub(note, 1, -2) .. ',"number":' .. number .. '}'
end
local taken = 1
if not (is_wish and redis.call('EXISTS', KEYS[6]) == 1) then
    taken = leave_note(ARGV[2], KEYS[1], ARGV[3], ARGV[4], note, now, ARGV[6] == '1', number and tonumber(ARGV[10]))
    if taken == 1 and number then redis.call('SET', KEYS[5], number) end
    if taken == 1 and is_wish then redis.call('SET', KEYS[6], number, 'EX', ARGV[9]) end
end
if taken ~= 1 or ARGV[7] ~= '1' then return {taken, 0} end
return {taken, wake_worker(KEYS[2], KEYS[3], KEYS[4])}

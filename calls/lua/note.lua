-- Leave a note on a member, make it due, and wake a worker if asked to.
-- KEYS: due, wakeup, wake marker, RQ queue, number of the last statement, mark of this statement
-- ARGV: now, prefix, member, note id, note, even if settled ('1' or ''), wake ('1' or ''), 'wish' | 'statement' (a
--       statement with or without an idempotency key) | '' (any other note), seconds a statement's mark is kept, number
--       of notes in an inbox from which on no statement is accepted
-- Returns {1 if the note was accepted, 2 if the inbox is full, else 0; 1 if the caller must enqueue a job}.
local now = now_ms()
local note, is_wish = ARGV[5], ARGV[8] == 'wish'
local number
if ARGV[8] ~= '' then
    -- The number is in ms like the clock, so that numbers still rise if this counter is lost. A repeated statement
    -- keeps its number: a new one would override a later correction, or be folded a second time.
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

-- Leave a note on a member, make it due, and wake a worker if asked to.
-- PARTS: notes, waking
-- KEYS: due, wakeup, wake, queue, statements, statement
-- ARGV: clock, prefix, member, note_id, note, even_settled, wakes, statement_kind, mark_kept_s, most
-- `statements` is the number of the last statement, `statement` the mark of this one. `even_settled` and `wakes` are '1'
-- or ''. `statement_kind` is 'wish' for a statement of an action, which can be repeated, 'statement' for one without an
-- action, or '' for any other note. With `most` notes in an inbox, no statement is accepted.
-- Returns {1 if the note was accepted, 2 if the inbox is full, else 0; 1 if the caller must enqueue a job}.
local now = now_ms()
local is_wish = statement_kind == 'wish'
local number
if statement_kind ~= '' then
    -- The number is in ms like the clock, so that numbers still rise if this counter is lost. A repeated statement
    -- keeps its number: a new one would override a later correction, or be folded a second time.
    number = string.format('%.0f', math.max(now, num(redis.call('GET', statements_key), 0) + 1))
    note = string.sub(note, 1, -2) .. ',"number":' .. number .. '}'
end
local taken = 1
if not (is_wish and redis.call('EXISTS', statement_key) == 1) then
    taken = leave_note(prefix, due_key, member, note_id, note, now, even_settled == '1', number and tonumber(most))
    if taken == 1 and number then redis.call('SET', statements_key, number) end
    if taken == 1 and is_wish then redis.call('SET', statement_key, number, 'EX', mark_kept_s) end
end
if taken ~= 1 or wakes ~= '1' then return {taken, 0} end
return {taken, wake_worker(wakeup_key, wake_key, queue_key)}

-- Have work taken up at once, by a shift that waits or by a new job.

-- Tell whether the caller must enqueue a job: not while one waits, nor within a second after another caller was told
-- to. A shift that starts deletes the marker. The marker holds its time; one in the future (the clock was set back)
-- counts as expired.
local function ask_for_job(marker, queue)
    if redis.call('LLEN', queue) > 0 then return 0 end
    local now = now_ms()
    local age = now - num(redis.call('GET', marker), 0)
    if age >= 0 and age < 1000 then return 0 end
    redis.call('SET', marker, now, 'PX', 1000)
    return 1
end

-- Have a worker handle what was made due: wake a waiting shift, and tell whether to enqueue a job.
local function wake_worker(wakeup, marker, queue)
    if redis.call('LLEN', wakeup) == 0 then redis.call('RPUSH', wakeup, '1') end
    return ask_for_job(marker, queue)
end

-- The first part of all scripts. A script names its other parts, its keys and its arguments in its first lines;
-- `callkeeper.calls.store.script` makes keys and arguments locals in front of this file: KEYS with the ending `_key`,
-- ARGV as they are, and of what is repeated (`rest...`) the index of its first. `clock` is the present time in ms, or
-- '' for Redis's own clock (always, outside of tests). CHECK_LIMIT, MOST_TOMBSTONES and CHANGES_KEPT are put in front,
-- too.

-- Read a stored number; the default if it is missing or unreadable, because an error would stop all workers.
local function num(stored, default) return stored and tonumber(stored) or default end

-- Return an instant until which something waits, at most `longest` ms from now. One that is stored farther ahead was
-- written before the clock was set back: `store` writes the bound instead, so that the wait ends.
local function bounded(stored, now, longest, store)
    local at = num(stored, 0)
    if at - now <= longest then return at end
    store(now + longest)
    return now + longest
end

local function now_ms()
    if clock ~= '' then return tonumber(clock) end
    local t = redis.call('TIME')
    return t[1] * 1000 + math.floor(t[2] / 1000)
end

local function told(section, field)
    local info = redis.pcall('INFO', section)
    return type(info) == 'string' and string.match(info, field .. ':(%w+)') or 'unknown'
end

-- Identify this run of this server. A restart changes the run id, a promotion the replication id. Both are needed: a
-- server that became a replica and was promoted again keeps its run id, but may have missed writes.
local function epoch()
    return told('server', 'run_id') .. '/' .. told('replication', 'master_replid')
end

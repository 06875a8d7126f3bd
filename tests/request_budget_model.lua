-- The Redis commands that the scripts of the budget use, on tables. Keys never expire. Returns the hash.
local hash = {}
local sets = {} -- key -> sorted set: `scores` by member, and `order`, its members by score, then by name

local function set_of(key)
    sets[key] = sets[key] or {scores = {}, order = {}}
    return sets[key]
end

-- Return how many members come before a member with this score.
local function rank(set, member, score)
    local order, scores, low, high = set.order, set.scores, 1, #set.order + 1
    while low < high do
        local middle = math.floor((low + high) / 2)
        local other = order[middle]
        local its = scores[other]
        if its < score or (its == score and other < member) then low = middle + 1 else high = middle end
    end
    return low - 1
end

local function remove(set, member)
    local score = set.scores[member]
    if score then
        table.remove(set.order, rank(set, member, score) + 1)
        set.scores[member] = nil
    end
end

-- As the argument of a command: with 17 digits.
local function text(number) return string.format('%.17g', number) end

local commands = {}

function commands.HGET(_, scope) return hash[scope] or false end

function commands.HSET(_, scope, value) hash[scope] = value end

function commands.HDEL(_, scope) hash[scope] = nil end

function commands.HKEYS()
    local scopes = {}
    for scope in pairs(hash) do scopes[#scopes + 1] = scope end
    return scopes
end

function commands.ZADD(key, score, member)
    local set = set_of(key)
    score = tonumber(score)
    remove(set, member)
    table.insert(set.order, rank(set, member, score) + 1, member)
    set.scores[member] = score
end

function commands.ZREM(key, member) remove(set_of(key), member) end

function commands.ZCARD(key) return #set_of(key).order end

function commands.ZRANGE(key, first)
    local set = set_of(key)
    local member = set.order[first < 0 and #set.order + 1 + first or first + 1]
    return member and {member, text(set.scores[member])} or {}
end

function commands.ZRANK(key, member)
    local set = set_of(key)
    local score = set.scores[member]
    return score and rank(set, member, score) or false
end

function commands.ZREMRANGEBYSCORE(key, lowest, highest)
    local set = set_of(key)
    if highest == '+inf' then -- above a score
        lowest = tonumber(string.sub(lowest, 2))
        while set.order[1] and set.scores[set.order[#set.order]] > lowest do remove(set, set.order[#set.order]) end
        return
    end
    highest = tonumber(highest)
    while set.order[1] and set.scores[set.order[1]] <= highest do remove(set, set.order[1]) end
end

function commands.EXPIRE() end

commands.PEXPIRE = commands.EXPIRE

redis = {call = function(command, ...)
    local answer = commands[command](...)
    if answer == nil then return 1 end
    return answer
end}

return hash

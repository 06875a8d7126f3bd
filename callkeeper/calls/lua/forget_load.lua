-- Forget what the service's load taught.
-- PARTS: request_budget
-- ARGV: clock, rest...
-- `rest` are scopes, or none for all. Returns the scopes that are known.
for _, scope in ipairs(#ARGV >= rest and {unpack(ARGV, rest)} or redis.call('HKEYS', budget_key)) do
    if load(scope).kind == LOADED then redis.call('HDEL', budget_key, scope) end
end
return redis.call('HKEYS', budget_key)

-- Return the token, or nil.
-- ARGV: clock, number
return load_token(now_ms())

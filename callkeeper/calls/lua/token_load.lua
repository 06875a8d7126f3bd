-- Return the token, or nil.
-- PARTS: token
-- ARGV: clock, number
return load_token(now_ms())

-- Return the token, or nil.
return load_token(now_ms())

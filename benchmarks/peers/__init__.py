"""The other ways: what people would use instead, as small and as well set up as we could make them."""

"""The alternatives that people would use instead, as small and as well configured as we could make them."""

"""The push endpoint, its authentication, and the health routes."""

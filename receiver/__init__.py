"""The push endpoint, its authentication, and health; nothing else."""

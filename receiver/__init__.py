"""The front door: the push endpoint, its authentication, health; nothing else."""

"""What RQ runs: the job functions, the worker with its pacemaker, the shift, the steps of a call."""

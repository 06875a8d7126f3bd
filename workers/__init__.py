"""What RQ runs: the job functions, the worker with its watchdog, the shift, the steps of a call."""

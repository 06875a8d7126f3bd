"""Where the check times come from: distributions, the cost of a schedule, its optimum, and the fit from settled calls.

Pure arithmetic over records, for the command line and the benchmarks. A worker needs none of it: it follows the times that
the rules file names (``calls.backoff``).
"""

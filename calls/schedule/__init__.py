"""Check times: the plan of a call (``check_plan``), and where the times come from.

Distributions and the cost of a schedule (``model``), its optimum, and the fit from settled calls are pure arithmetic
for the command line and the benchmarks. A worker needs none of it: it follows the times that the rules file names.
"""

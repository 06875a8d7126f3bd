"""``callkeeper run``: Redis, the stand-in, web and workers on one machine, and the audit of what they did."""

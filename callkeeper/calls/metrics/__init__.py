"""Figures: what all processes together have counted and measured, kept in Redis.

A process counts in its own memory (``counting``), which is cheap. Once a second a thread writes the counts with one
script (``redis_writer``). ``snapshot`` reads the totals, the minutes of the last hour, and the present state.
``signals`` reads what incidents are judged by. ``catalogue`` lists everything that is counted.
"""

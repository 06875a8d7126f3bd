"""Figures: what all processes together have counted and measured, kept in Redis.

A process counts into its own memory (``counting``), which costs one dictionary entry. Once a second a thread writes what
was counted in one script (``writing``). ``reading`` returns the totals and the minutes of the last hour,
``present`` what is true at this moment. ``catalogue`` lists everything that is counted.
"""

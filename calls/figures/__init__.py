"""Figures: what all processes together have counted and measured, kept in Redis.

A process counts into its own memory (``Figures``), which costs one dictionary entry; once a second a thread of its own
writes what was counted in one script (``Reporter``). ``FigureReader`` returns the totals since ever and the minutes of the
last hour, ``read_present`` what is true at this moment. `calls.figures.catalogue` lists everything that is counted.
"""

from calls.figures.counting import Figures
from calls.figures.present import Present, read_present
from calls.figures.reading import FigureReader, Minute, Process
from calls.figures.snapshot import Snapshot, Spread

__all__ = ["FigureReader", "Figures", "Minute", "Present", "Process", "Snapshot", "Spread", "read_present"]

"""Finds out whether an installation can do its work: one finding a line, each fault with its remedy.

docs/operations.md has a section for every `Topic`.
"""

from callkeeper.doctor.configuration import Part
from callkeeper.doctor.examination import examine
from callkeeper.doctor.finding import Finding, State, Topic

__all__ = ["Finding", "Part", "State", "Topic", "examine"]

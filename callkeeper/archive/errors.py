"""Errors of the archive's database. This module does not import SQLAlchemy."""


class ArchiveAway(Exception):
    """The database cannot be used now: unreachable, full, read-only, or without tables. Names the kind of error."""


class LineUnreadable(ArchiveAway):
    """A line is not what a worker writes: somebody has changed it. ``callkeeper archive verify`` names it."""


class HoldsUnknown(Exception):
    """Somebody has changed a line about the archive, so nobody knows what is under a legal hold. Nothing was removed."""


class ValueRefused(Exception):
    """The database refuses one value, and would refuse it again."""

"""What can go wrong with the archive's database; importing this imports no SQLAlchemy."""


class ArchiveAway(Exception):
    """The database cannot be used now: unreachable, full, read-only, or without our tables. Names the kind of error."""


class ValueRefused(Exception):
    """The database refuses one value, and would refuse it again."""

"""A Redis clock for stores that are tested without the rest."""


class Hand:
    """A Redis clock that is moved by hand, in milliseconds."""

    def __init__(self) -> None:
        self.ms = 1_000_000_000

    def __call__(self) -> int:
        """Return the time."""
        return self.ms

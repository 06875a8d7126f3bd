"""How often failed work is tried again before a person must look: steps that raised an error, outcomes not accepted."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from callkeeper.calls.claimed_item import Placement


@dataclass(frozen=True, slots=True)
class Retry:
    """A policy.

    ``waits_s`` are the seconds before the second, third ... try; the last one repeats. Work is parked after ``most``
    failures in a row, or when it fails and is older than ``oldest``.
    """

    waits_s: tuple[float, ...]
    most: int | None = None
    oldest: timedelta | None = None

    def wait_s(self, failures: int, age: timedelta = timedelta()) -> float | None:
        """Return the seconds until the next try after ``failures`` in a row, at least 1; None if the work is parked."""
        is_spent = self.most is not None and failures >= self.most
        is_old = self.oldest is not None and age > self.oldest
        return None if is_spent or is_old else self.waits_s[min(failures, len(self.waits_s)) - 1]

    def placement(self, failures: int, parked_as: str) -> Placement:
        """Return when such work is due again, or with which attention reason it is parked."""
        wait_s = self.wait_s(failures)
        return Placement(None, attention=parked_as) if wait_s is None else Placement(int(wait_s * 1000))


STEPS: Final = Retry((2.0, 4.0, 8.0, 16.0), most=5)
"""For a call, an institution or a line of the archive that raises an error: probably a bug, so a person must look."""

OUTCOMES: Final = Retry((5.0, 15.0, 60.0, 300.0, 900.0, 3600.0), oldest=timedelta(days=1))
"""For an outcome that its receiver does not accept: the receiver may be away for hours."""

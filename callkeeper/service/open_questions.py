"""What the service's document leaves open, and how an observer says which answer the service gave.

docs/assumptions.md lists the questions as assumptions, each with an identifier. `callkeeper.calls.assumptions` has the
list; observers only name the identifier and the answer.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Final, NamedTuple

USUAL: Final = "usual"
"""The name of the answer that is expected. The others have names of their own."""

AHEAD: Final = {
    timedelta(minutes=3): "clock-3-min-ahead",
    timedelta(minutes=-3): "clock-3-min-behind",
    timedelta(hours=5): "clock-5-h-ahead",
    timedelta(hours=-5): "clock-5-h-behind",
}
"""The answers of clocks that differ, by how far the clock is ahead."""

ZONES: Final = {"Z": "in UTC", "offset": "with an offset", "none": "without a zone"}
"""The words for what follows an instant."""


class Shown(NamedTuple):
    """One answer that was seen.

    ``shape`` is a sample of its form: names of fields, types, lengths, and words of the Spec. Never a value of a person.
    """

    assumption: str
    answer: str = USUAL
    shape: str = ""


See = Callable[[str, str, str, str], None]
"""Called with each answer that was seen: assumption, answer, the institution's key (empty: of none), shape."""


def unseen(_assumption: str, _answer: str, _institution_key: str, _shape: str) -> None:
    """See nothing."""

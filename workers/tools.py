"""What every move works with."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from calls.rules.book import RuleBook
from calls.store import LEASE_MS, Store
from workers.counting import Counting
from workers.crashpoints import Crashpoints
from workers.noticing import PauseNotice
from workers.service import Service


@dataclass(frozen=True, slots=True)
class Tools:
    """The store, the service, the rules, the time and the log: the same for every call of a shift."""

    store: Store
    service: Service
    book: RuleBook
    requested_by: Callable[[str], str]
    monotonic: Callable[[], float]
    log: Any
    crash: Crashpoints = field(default_factory=Crashpoints)
    pauses: PauseNotice = field(default_factory=PauseNotice)
    counting: Counting = field(default_factory=Counting)
    hold: timedelta = timedelta(milliseconds=LEASE_MS)
    """For how long effects are held when Redis is new: whatever was booked in the old one is over by then."""

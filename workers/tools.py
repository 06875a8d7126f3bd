"""What every move works with."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from calls.rules.book import RuleBook
from calls.store.store import Store
from reseller import Reseller
from workers.counting import Counting
from workers.noticing import PauseNotice
from workers.service_clock import ServiceClock


@dataclass(frozen=True, slots=True)
class Tools:
    """The store, the service, the rules, the time and the log: the same for every call of a shift.

    Raises:
        ValueError: A request may take longer than the store's lease allows for, or shorter: the two must be one number.
    """

    store: Store
    service: Reseller
    clock: ServiceClock
    book: RuleBook
    requested_by: Callable[[str], str]
    monotonic: Callable[[], float]
    log: Any
    pauses: PauseNotice = field(default_factory=PauseNotice)
    counting: Counting = field(default_factory=Counting)

    def __post_init__(self) -> None:
        deadline_s, request_s = self.service.deadline_s, self.store.lease.request_s
        if deadline_s != request_s:
            raise ValueError(f"requests take {deadline_s:g} s, leases allow for {request_s:g} s")

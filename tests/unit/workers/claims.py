"""A claimed call without a store: what a step writes stays where a test can see it."""

from dataclasses import dataclass, field
from datetime import datetime
from types import SimpleNamespace
from typing import Any, cast

import structlog
from structlog.testing import LogCapture

from callkeeper.calls.claimed_item import Placement
from callkeeper.calls.context import Context
from callkeeper.calls.item_names import CallId
from callkeeper.calls.record import Call, with_effect
from tests.unit.calls.specimens import BOOK, NOW, call, seconds
from workers.claimed_call import Claim


@dataclass
class HeldClaim:
    """Stands for `Claim`. ``saved`` has what ended it: an instant, None, a placement, or "forgotten"."""

    call: Call = field(default_factory=call)
    age_s: float = 0.0
    permits: int = 0
    last_listed_at: datetime | None = None
    held_up: list[Any] = field(default_factory=list)
    entries: list[Any] = field(default_factory=list)
    counted: list[str] = field(default_factory=list)
    saved: list[Any] = field(default_factory=list)
    wanted: list[Any] = field(default_factory=list)
    institutions: Any = None

    call_id = CallId("cu-1", "v-1")
    pause = None

    def __post_init__(self) -> None:
        self.log = LogCapture()
        self.item = SimpleNamespace(member="c:cu-1:v-1", late=seconds(0), now=NOW - seconds(self.age_s))
        self.summary = SimpleNamespace(add=self.counted.append)
        self.tools = SimpleNamespace(
            book=BOOK,
            log=structlog.wrap_logger(None, processors=[self.log]),
            cpu_share=lambda: 0.0,
            listings=SimpleNamespace(last_listed_at=self._last_listed_at),
            gate=SimpleNamespace(
                ask=self._ask, patterns=SimpleNamespace(established=self._note, turned_away=self._note)
            ),
            store=SimpleNamespace(keep_alias=self._keep_alias),
        )

    @property
    def now(self) -> datetime:
        """Return the present."""
        return NOW

    def context(self, *, is_silent: bool = False) -> Context:
        """Return what a decision must know now."""
        return Context(self.call.last_claim, late=self.item.late, busy=self.tools.cpu_share(), is_silent=is_silent)

    @property
    def is_over(self) -> bool:
        """Tell whether the claim was released."""
        return bool(self.saved)

    @property
    def events(self) -> list[str]:
        """Return the names of what was logged."""
        return [entry["event"] for entry in self.log.entries]

    async def _last_listed_at(self, _institution_key: str) -> datetime | None:
        return self.last_listed_at

    async def _ask(self, wanted: Any, _now: datetime) -> Any:
        self.wanted.append(wanted)
        return self.held_up.pop(0) if self.held_up else None

    async def _keep_alias(self, institution_key: str, alternate_id: str) -> None:
        self.saved.append((institution_key, alternate_id))

    def _note(self, *_what: Any) -> None:
        """Take what is watched for the survey."""

    def see(self, _shown: Any) -> None:
        """Take what an answer shows for the survey."""

    def set_effect(self, kind: Any, effect: Any) -> None:
        """Replace a ledger."""
        self.call = with_effect(self.call, kind, effect)

    def in_force(self, kind: Any) -> None:
        """Count an effect that is in force."""
        self.counted.append(kind)

    async def look_up_earlier(self, *, anew: bool = False) -> None:
        """Find no earlier calls."""

    async def let_go(self, until: datetime | None) -> None:
        """Release the claim."""
        self.saved.append(until)

    async def save(self, placement: Placement) -> None:
        """Save the call."""
        self.saved.append(placement)

    async def forget(self) -> None:
        """Delete the call."""
        self.saved.append("forgotten")

    def hold_back(self, because: str) -> None:
        """Note why nothing was sent."""
        self.entries.append(because)


def as_claim(held: HeldClaim) -> Claim:
    """Return it as what steps take."""
    return cast("Claim", held)

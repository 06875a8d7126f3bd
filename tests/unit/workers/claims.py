"""A claimed call without a store: what a step writes stays where a test can see it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import structlog
from structlog.testing import LogCapture

from callkeeper.calls.claimed_item import LEASE, Epoch, Placement, RefusedBy, WriteRefused
from callkeeper.calls.context import Context
from callkeeper.calls.item_names import CallId
from callkeeper.calls.metrics.counting import Figures
from callkeeper.calls.record import Call, with_effect
from callkeeper.service import NotSent
from callkeeper.service.answer_tap import AnswerTap, unseen
from tests.unit.calls.specimens import BOOK, NOW, call, seconds
from workers.claimed_call import Claim


@dataclass
class Answering:
    """Stands for the service: every effect has one outcome. ``sent`` has what was asked, each with its operator."""

    outcome: str | Exception = "v-1"
    tap: AnswerTap = field(default_factory=lambda: AnswerTap(unseen, clock=lambda: 0.0, now=lambda: NOW))
    sent: list[Any] = field(default_factory=list)

    async def _answer(self, *about: str, requested_by: str, guard: Callable[[], None], **more: str) -> str:
        try:
            guard()
        except Exception as error:
            raise NotSent("effect", "the guard") from error
        self.sent.append((*about, *more.values(), requested_by))
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome

    assign = enroll = reject_voice = _answer


@dataclass
class HeldClaim:
    """Stands for `Claim`. ``saved`` has what ended it: an instant, None, a placement, or "forgotten".

    ``kept`` has the records that were written before, with their conditions; the write takes ``keeps_s``, and is refused
    because of ``refused_by``. ``enrolled`` are the member's calls
    with an enroll, ``records`` those of them that are still there, ``merged`` has
    the id into whose record each of others was merged; ``announced`` has the members whose enroll was, ``since``
    the instants from which on others were looked up. ``found_s`` is the greatest age of the call, None: any; ``may_be_old``
    is what that was asked with. ``left`` are the notes that were left on other calls, and
    ``established_in`` has the record as others could read it when they were told that the caller is established.
    """

    call: Call = field(default_factory=call)
    age_s: float = 0.0
    permits: int = 0
    last_listed_at: datetime | None = None
    held_up: list[Any] = field(default_factory=list)
    entries: list[Any] = field(default_factory=list)
    counted: list[str] = field(default_factory=list)
    saved: list[Any] = field(default_factory=list)
    wanted: list[Any] = field(default_factory=list)
    institutions: Any = field(default_factory=lambda: SimpleNamespace(managed_keys=SimpleNamespace(spelling_kept=str)))
    service: Answering = field(default_factory=Answering)
    keeps_s: float = 0.0
    refused_by: RefusedBy | None = None
    kept: list[Any] = field(default_factory=list)
    enrolled: list[str] = field(default_factory=list)
    established: list[str] = field(default_factory=list)
    established_in: list[Call] = field(default_factory=list)
    records: dict[str, Call] = field(default_factory=dict)
    merged: dict[str, str] = field(default_factory=dict)
    announced: list[str] = field(default_factory=list)
    since: list[datetime] = field(default_factory=list)
    epoch: Epoch = field(default_factory=lambda: Epoch("epoch", NOW))
    found_s: float | None = 0.0
    may_be_old: list[bool] = field(default_factory=list)
    left: list[Any] = field(default_factory=list)

    bot = "bot"
    spelled_id = "v-1"
    call_id = CallId("cu-1", "v-1")
    pause: str | None = None
    marks_kept: int = 0

    def __post_init__(self) -> None:
        self.log, self._seconds = LogCapture(), LEASE.first_byte_s  # twice as much is exact
        now = NOW - seconds(self.age_s)
        self.item = SimpleNamespace(member="c:cu-1:v-1", late=seconds(0), now=now, epoch=self.epoch)
        self.summary = SimpleNamespace(add=self.counted.append)
        self.tools = SimpleNamespace(
            book=BOOK,
            clock=SimpleNamespace(age=self._age),
            log=structlog.wrap_logger(None, processors=[self.log]),
            cpu_share=lambda: 0.0,
            listings=SimpleNamespace(last_listed_at=self._last_listed_at),
            gate=SimpleNamespace(
                ask=self._ask,
            ),
            store=SimpleNamespace(
                keep_alias=self._keep_alias,
                lease=LEASE,
                jumps=(),
                members=SimpleNamespace(
                    announce=self._announce,
                    enrolled_since=self._enrolled_since,
                    establish=self._establish,
                    established_since=self._established_since,
                ),
                note=self._leave_note,
                end_of=self._end_of,
                record=self._record,
            ),
            service=self.service,
            counting=SimpleNamespace(label=str, figures=Figures()),
            monotonic=lambda: self._seconds,
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

    async def _last_listed_at(self, _institution_key: str, _now: datetime) -> datetime | None:
        return self.last_listed_at

    async def _ask(self, wanted: Any, _now: datetime) -> Any:
        self.wanted.append(wanted)
        return self.held_up.pop(0) if self.held_up else None

    async def _keep_alias(self, institution_key: str, alternate_id: str) -> None:
        self.saved.append((institution_key, alternate_id))

    async def _announce(self, _call_id: CallId, person_id: str, _now: datetime) -> None:
        self.announced.append(person_id)

    async def _enrolled_since(self, _institution_key: str, _person_id: str, since: datetime) -> list[str]:
        self.since.append(since)
        return self.enrolled

    async def _establish(self, _call_id: CallId, _person_id: str, _now: datetime) -> None:
        self.established_in.append(self.kept[-1][0] if self.kept else call())

    async def _established_since(self, _institution_key: str, _person_id: str, since: datetime) -> list[str]:
        self.since.append(since)
        return self.established

    async def _leave_note(self, call_id: CallId, note: Any, *, even_settled: bool) -> None:
        self.left.append((call_id.voice_id, note, even_settled))

    async def _end_of(self, call_id: CallId) -> CallId:
        return CallId(call_id.institution_key, self.merged.get(call_id.voice_id, call_id.voice_id))

    async def _record(self, call_id: CallId) -> Call | None:
        return self.records.get(call_id.voice_id)

    def _age(self, *_of: Any, may_be_old: bool) -> timedelta | None:
        self.may_be_old.append(may_be_old)
        return None if self.found_s is None else seconds(self.found_s)

    def set_effect(self, kind: Any, effect: Any) -> None:
        """Replace a ledger."""
        self.call = with_effect(self.call, kind, effect)

    def in_force(self, kind: Any) -> None:
        """Count an effect that is in force."""
        self.counted.append(kind)

    async def look_up_earlier(self, *, anew: bool = False) -> None:
        """Find no earlier calls."""

    async def keep(self, **conditions: Any) -> None:
        """Write the record, and keep the claim."""
        self._seconds += self.keeps_s
        if self.refused_by is not None:
            raise WriteRefused(self.item.member, self.refused_by)
        self.kept.append((self.call, conditions))

    async def keep_marks(self) -> None:
        """Count how often later calls were told."""
        self.marks_kept += 1

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

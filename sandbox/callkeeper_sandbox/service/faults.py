"""Scripted faults: what fails, for which requests, how often.

A fault is chosen when a request has been received, before it is handled. `applied` then says whether the service
carries out the request before the failure. Random choices use the fault's seed, so a script is repeatable.
"""

import random
from enum import StrEnum

import msgspec

from callkeeper_sandbox.service.access import Operation
from callkeeper_sandbox.service.state import Happening


class Action(StrEnum):
    """The kinds of failure."""

    PASS = "pass"  # noqa: S105  (nothing, apart from latency, headers and what happens)
    HANG = "hang"
    RESET = "reset"
    DROP = "drop"
    ANSWER = "answer"
    UNAUTHORIZED = "unauthorized"
    REFUSED = "refused"
    TRUNCATED = "truncated"
    CUT = "cut"
    EMPTY = "empty"
    HTML = "html"
    FOREIGN = "foreign"
    GZIP = "gzip"
    GZIP_BOMB = "gzip_bomb"
    LOST = "lost"
    DOUBLED = "doubled"
    REORDERED = "reordered"
    ALTERNATE_ONLY = "alternate_only"
    ALTERNATE_FIRST = "alternate_first"


PUSH = "push"
LISTING = "listing"
DETAILS = "details"
ANY = "*"
TARGETS = frozenset({ANY, DETAILS, PUSH, LISTING, *Operation})
"""Targets of faults: an operation, `details` (checks and reads), `push`, `listing`, or `*` (every operation)."""


class Fault(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One scripted fault.

    Attributes:
        target: One of `TARGETS`.
        action: The kind of failure; `pass` for latency or headers only.
        voice_id: Only requests for this call, by either id as given.
        institution_key: Only requests for this institution.
        event: Only pushes of this type (CallStart or CallEnd).
        skip: Let this many matching requests pass first.
        times: How many requests it affects; None for all.
        share: The probability that it affects a matching request, 0 to 1.
        seed: Makes the random choice repeatable.
        applied: Whether the service carries out the request; None for the action's default (only `cut`, `truncated`,
            `html`, `foreign`, `empty`, `gzip`, `gzip_bomb` and `pass` do).
        latency_s: Seconds before a request is handled, a push is sent, or a listing shows a call.
        status: The HTTP status of `answer`.
        headers: Headers to add to the answer: Retry-After, Set-Cookie, Location.
        body: The body of `answer`, `html`, `foreign` or `refused` instead of the built-in one.
        happening: A change of the call when the request has arrived, before it is handled.
        id: Set by the sandbox.
        seen: How many requests matched so far.
        met: How many it affected.
    """

    target: str
    action: Action = Action.PASS
    voice_id: str | None = None
    institution_key: str | None = None
    event: str | None = None
    skip: int = 0
    times: int | None = None
    share: float = 1.0
    seed: int = 0
    applied: bool | None = None
    latency_s: float = 0.0
    status: int = 503
    headers: dict[str, str] = {}
    body: str | None = None
    happening: Happening | None = None
    id: int = 0
    seen: int = 0
    met: int = 0

    def __post_init__(self) -> None:
        """Refuse an invalid script."""
        if self.target not in TARGETS:
            raise ValueError(f"target is one of {', '.join(sorted(TARGETS))}")
        if not 0 <= self.share <= 1:
            raise ValueError("share is 0 to 1")

    @property
    def is_applied(self) -> bool:
        """Tell whether the service carries out the request before the failure."""
        return self.applied if self.applied is not None else self.action in _APPLIED

    @property
    def turns_away(self) -> bool:
        """Tell whether requests are answered 429 unread, as when there are too many."""
        return self.action is Action.ANSWER and self.status == 429 and not self.is_applied


_APPLIED = frozenset(
    {
        Action.PASS,
        Action.TRUNCATED,
        Action.CUT,
        Action.EMPTY,
        Action.HTML,
        Action.FOREIGN,
        Action.GZIP,
        Action.GZIP_BOMB,
    }
)


class Matter(msgspec.Struct, frozen=True):
    """A request or push, as matched with faults."""

    target: str
    institution_key: str = ""
    voice_ids: frozenset[str] = frozenset()
    event: str | None = None


class Faults:
    """The scripted faults in force, in order. Those of variants come last."""

    def __init__(self, scripted: list[Fault] | None = None) -> None:
        self.scripted = scripted if scripted is not None else []
        self.of_variants: list[Fault] = []
        self._last_id = max((fault.id for fault in self.scripted), default=0)

    def add(self, fault: Fault) -> Fault:
        """Put a fault in force and give it an id."""
        self._last_id += 1
        fault.id = self._last_id
        self.scripted.append(fault)
        return fault

    def clear(self, fault_id: int | None = None) -> None:
        self.scripted[:] = [fault for fault in self.scripted if fault_id is not None and fault.id != fault_id]

    def take(self, matter: Matter) -> Fault | None:
        """Return the first fault that affects this request or push, and count it."""
        return next((fault for fault in (*self.scripted, *self.of_variants) if _meets(fault, matter)), None)


def _meets(fault: Fault, matter: Matter) -> bool:
    if not _matches(fault, matter) or (fault.times is not None and fault.met >= fault.times):
        return False
    fault.seen += 1
    if fault.seen <= fault.skip or not _drawn(fault):
        return False
    fault.met += 1
    return True


def _matches(fault: Fault, matter: Matter) -> bool:
    return (
        _aims_at(fault.target, matter.target)
        and (fault.voice_id is None or fault.voice_id in matter.voice_ids)
        and (fault.institution_key is None or fault.institution_key == matter.institution_key)
        and (fault.event is None or fault.event == matter.event)
    )


def _aims_at(aim: str, target: str) -> bool:
    if aim == ANY:
        return target not in (PUSH, LISTING)
    if aim == DETAILS:
        return target in (Operation.CHECK, Operation.READ)
    return aim == target


def _drawn(fault: Fault) -> bool:
    if fault.share >= 1:
        return True
    return random.Random(f"{fault.seed}/{fault.id}/{fault.seen}").random() < fault.share  # noqa: S311  (repeatable)

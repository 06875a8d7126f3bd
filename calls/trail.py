"""The trail: what happened to a call and why, one line each, only ever appended.

A line is an ``Entry``; its fields are the allow-list of what may be written down about a call. Names, numbers of
documents, birth dates, passwords and tokens have no field to go to.

A ``Recorded`` call is what it came to and its whole trail, as one line of JSON: what is exported, replayed, reported
and told. Its shape is versioned by its ``format`` field; a reader refuses another version.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Literal

import msgspec

from calls.ledger import EffectState
from calls.record import Call, Phase, Reason

What = Literal[
    "pushed",  # an event came in
    "listed",  # the queue lists the call
    "unlisted",  # a full listing did not contain it
    "dropped",  # a hint the queue never confirmed
    "merged",  # another id turned out to be this call
    "said",  # a person's word
    "read",  # stored details, where something changed
    "checked",  # one of the 20 checks, and what came back
    "check_failed",  # a booked check without a usable answer
    "decided",  # a rule or the law, and its verdict
    "facts",  # facts changed and the verdict did not
    "intended",  # an effect was decided and saved
    "withdrawn",  # an intention that nothing was sent for
    "sent",  # saved before the first byte
    "answered",  # what came back for an effect
    "established",  # what stored details proved about an effect in doubt
    "verifying",  # Redis was replaced or restarted: stored details are read before anything else
    "held_back",  # the service is away: nothing was booked or sent
    "ended",
    "parked",
    "settled",
    "unreadable",  # a stored line that this version cannot read; it stays as it is
]


Result = Literal[
    "matched",  # every condition holds, and the rule is live: it decides
    "shadowed",  # every condition holds, in shadow: written down and passed over
    "failed",  # a condition does not hold; the first one is named
    "elsewhere",  # not meant for this institution
    "unasked",  # an earlier rule has decided
]


class Tried(msgspec.Struct, frozen=True, array_like=True):
    """How one rule fared in one decision.

    ``fact`` is the first condition that failed, ``wanted`` what the rule asks of it, ``was`` what it was. ``forbidden`` are
    the law's reasons against what a rule that matched asks for.
    """

    rule: str
    then: str
    stage: str
    result: Result
    fact: str | None = None
    wanted: str | bool | int | None = None
    was: str | bool | int | None = None
    forbidden: tuple[str, ...] = ()


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a trail. ``n`` counts checks, of 20; ``took_ms`` is the service's time to answer.

    A decision holds what a person needs to follow it years later, without the rules file of that day: ``facts`` (those that
    are not false, none or 0), ``tried`` (how each rule fared), ``asked`` (what the winning rule wants), ``kind`` (what is
    left of that within the law), ``forbidden`` (the law's reasons), ``pause`` (the pause in force, by whom and why).
    """

    at: datetime
    what: What
    event_id: str | None = None
    voice_id: str | None = None
    person_id: str | None = None
    kind: str | None = None
    state: str | None = None
    status: str | None = None
    policies: tuple[str, ...] = ()
    signs: tuple[str, ...] = ()
    """With a check: the facts that its answer showed by itself (``calls.facts.signs_of``)."""
    n: int | None = None
    took_ms: int | None = None
    rule: str | None = None
    rules: str | None = None
    """Digest of the rules in force."""
    because: str | None = None
    validation_type: str | None = None
    operator: str | None = None
    token: str | None = None
    wish: str | None = None
    """Which wish of the desk a person's word was."""
    candidates: int | None = None
    facts: dict[str, str | bool | int | None] | None = None
    forbidden: tuple[str, ...] = ()
    asked: str | None = None
    tried: tuple[Tried, ...] = ()
    pause: str | None = None
    trace: str | None = None
    """The event that a request was made for."""


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Entry)
_NEVER = datetime.fromtimestamp(0, UTC)


def encode_entry(entry: Entry) -> bytes:
    """Write a line as stored."""
    return _ENCODER.encode(entry)


def parse_trail(stored: Sequence[bytes]) -> tuple[Entry, ...]:
    """Read stored lines, oldest first. One that cannot be read keeps its place: outcomes are numbered by their lines."""
    lines: list[Entry] = []
    for line in stored:
        try:
            lines.append(_DECODER.decode(line))
        except msgspec.MsgspecError:
            lines.append(Entry(at=lines[-1].at if lines else _NEVER, what="unreadable"))
    return tuple(lines)


FORMAT = "callkeeper.trail/1"


class Recorded(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="format", tag=FORMAT):
    """One call and its trail, oldest line first."""

    institution_key: str
    voice_id: str
    phase: Phase
    trail: tuple[Entry, ...]
    alternate_id: str | None = None
    started_at: datetime | None = None
    reason: Reason | None = None
    person_id: str | None = None
    checks_used: int = 0
    assign: EffectState = EffectState.NONE
    enroll: EffectState = EffectState.NONE
    reject: EffectState = EffectState.NONE

    @property
    def begins_at(self) -> datetime | None:
        """Return the instant that times are counted from: the call's start, else the first that was heard of it."""
        return self.started_at or (self.trail[0].at if self.trail else None)


class RecordingWrong(Exception):
    """A file of recorded calls has a line that is none. Says which, and what is wrong with it."""


def recorded(call: Call, trail: Iterable[Entry]) -> Recorded:
    """Return a call's record and its trail as one."""
    return Recorded(
        institution_key=call.institution_key,
        voice_id=call.voice_id,
        trail=tuple(trail),
        alternate_id=call.alternate_id,
        started_at=call.started_at,
        phase=call.phase,
        reason=call.reason,
        person_id=call.person_id,
        checks_used=call.checks_used,
        assign=call.assign.state,
        enroll=call.enroll.state,
        reject=call.reject.state,
    )


_RECORDED = msgspec.json.Decoder(Recorded)


def encode_recorded(call: Recorded) -> bytes:
    """Write a recorded call as one line, without the line end."""
    return _ENCODER.encode(call)


def parse_recordings(lines: Iterable[bytes]) -> Iterator[Recorded]:
    """Read recorded calls, one a line; empty lines are passed over.

    Raises:
        RecordingWrong: A line is not a recorded call of this format.
    """
    for n, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield _RECORDED.decode(line)
        except msgspec.MsgspecError as error:
            raise RecordingWrong(f"line {n} is not a call as exported by callkeeper calls export: {error}") from None

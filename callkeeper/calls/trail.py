"""The trail: what happened to a call and why, one entry each, append-only.

The fields of an ``Entry`` are the allow-list of what may be written about a call. There are no fields for names,
document numbers, birth dates, passwords or tokens.

A ``Recorded`` call is its result with its whole trail, as one line of JSON. It is used for export, replay, reports and
stories. Its ``format`` field holds the version of its shape; other versions are refused.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Literal

import msgspec
from msgspec.structs import replace

from callkeeper.calls.effect_ledger import EffectState
from callkeeper.calls.record import Call, Phase, Reason

What = Literal[
    "pushed",  # an event came in
    "listed",  # the queue lists the call
    "unlisted",  # a full listing did not contain it
    "dropped",  # a hint the queue never confirmed
    "merged",  # another id turned out to be this call
    "said",  # a person's statement
    "read",  # stored details, where something changed
    "checked",  # one of the 20 checks, and what came back
    "check_failed",  # a booked check without a usable answer
    "decided",  # a rule or the law, and its verdict
    "facts",  # facts changed and the verdict did not
    "intended",  # an effect was decided and saved
    "withdrawn",  # an intention was given up; nothing was sent
    "sent",  # saved before the first byte
    "answered",  # what came back for an effect
    "established",  # what stored details proved about an effect in doubt
    "verifying",  # Redis was replaced or restarted: stored details are read before anything else
    "held_back",  # the service does not answer: nothing was booked or sent
    "ended",
    "parked",
    "settled",
    "unreadable",  # a stored entry that this version cannot read; it is kept
]


Result = Literal[
    "matched",  # every condition holds, and the rule is live: it decides
    "shadowed",  # every condition holds, in shadow: recorded, but it does not decide
    "failed",  # a condition does not hold; the first one is named
    "elsewhere",  # not meant for this institution
    "unasked",  # an earlier rule decided
]


class Tried(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The result of one rule in one decision.

    ``fact`` is the first condition that failed, ``wanted`` the value the rule requires, ``was`` the actual value.
    ``forbidden`` are the law's reasons against what a matching rule asks for.
    """

    rule: str
    then: str
    stage: str
    result: Result
    fact: str | None = None
    wanted: str | bool | int | None = None
    was: str | bool | int | None = None
    forbidden: tuple[str, ...] = ()


class Entry(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """One entry of a trail. ``n`` is the number of a check, of 20; ``took_ms`` is the service's response time.

    A decision can be understood years later, without the rules file of that day. It holds ``facts`` (those that are not
    false, none or 0), ``earlier_calls`` (the voice id behind each fact about earlier calls), ``tried`` (the result of
    each rule), ``asked`` (what the deciding rule wants), ``kind`` (what remains of that within the law), ``forbidden``
    (the law's reasons) and ``pause`` (the pause in force, by whom and why). A person's answer about an effect in doubt
    names it in ``asked``. A statement that was refused has in ``forbidden`` what for.
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
    """For a check: the facts that its answer showed by itself (``callkeeper.calls.fact_derivation.signs_of``). For a
    decision: what speaks against the caller since a person closed the question, which is asked again for that."""
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
    """The id of the action that a statement belongs to."""
    candidates: int | None = None
    facts: dict[str, str | bool | int | None] | None = None
    earlier_calls: dict[str, str] = {}
    forbidden: tuple[str, ...] = ()
    asked: str | None = None
    tried: tuple[Tried, ...] = ()
    pause: str | None = None
    trace: str | None = None
    """The event for which a request was made."""
    despite: tuple[str, ...] = ()
    """A word that verifies the caller, or an enroll: the evidence that it overrules (`callkeeper.calls.informed_words`)."""
    member: str | None = None
    """A distrust: who stood on the call when it was said. Its reason is about that member, whoever the call's is later."""


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Entry)
_NEVER = datetime.fromtimestamp(0, UTC)


def encode_entry(entry: Entry) -> bytes:
    """Encode an entry for storage."""
    return _ENCODER.encode(entry)


def parse_trail(stored: Sequence[bytes]) -> tuple[Entry, ...]:
    """Decode stored entries, oldest first. An unreadable one keeps its place: outcomes are numbered by their entries."""
    lines: list[Entry] = []
    for line in stored:
        try:
            lines.append(_DECODER.decode(line))
        except msgspec.MsgspecError:
            lines.append(Entry(at=lines[-1].at if lines else _NEVER, what="unreadable"))
    return tuple(lines)


FORMAT = "callkeeper.trail/1"


class Recorded(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="format", tag=FORMAT):
    """One call and its trail, oldest entry first."""

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
        """Return the instant that times are relative to: the call's start, else its first entry."""
        return self.started_at or (self.trail[0].at if self.trail else None)


class RecordingWrong(Exception):
    """A line in a file of recorded calls is not one. The message names the line and the fault."""


def recorded(call: Call, trail: Iterable[Entry]) -> Recorded:
    """Combine a call's record and its trail."""
    return Recorded(
        institution_key=call.institution_key,
        voice_id=call.voice_id,
        trail=tuple(trail),
        alternate_id=call.names.alternate_id,
        started_at=call.life.started_at,
        phase=call.life.phase,
        reason=call.life.reason,
        person_id=call.seen.person_id,
        checks_used=call.plan.checks_used,
        assign=call.ledger.assign.state,
        enroll=call.ledger.enroll.state,
        reject=call.ledger.reject.state,
    )


def without_typed_words(call: Recorded) -> Recorded:
    """Leave out the reasons that people typed, of statements and of pauses: they may name anybody, and decide nothing."""
    return replace(call, trail=tuple(map(_without_typed_words, call.trail)))


def _without_typed_words(entry: Entry) -> Entry:
    because = None if entry.what == "said" else entry.because
    return replace(entry, because=because, pause=entry.pause and entry.pause.partition(":")[0])


_RECORDED = msgspec.json.Decoder(Recorded)


def encode_recorded(call: Recorded) -> bytes:
    """Encode a recorded call as one line, without the line end."""
    return _ENCODER.encode(call)


def parse_recordings(lines: Iterable[bytes]) -> Iterator[Recorded]:
    """Read recorded calls, one per line. Empty lines are skipped.

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

"""Calls to decide about: one ordinary live call, whatever differs from it, and every call there could be."""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from callkeeper.calls.effect_ledger import Effect, EffectState
from callkeeper.calls.institutions import FOREIGN, UNKNOWN
from callkeeper.calls.notes import Listed
from callkeeper.calls.reading_folding import fold_reading
from callkeeper.calls.record import (
    Call,
    CallStatement,
    Candidate,
    Identity,
    Ledger,
    Life,
    Mark,
    Marks,
    Phase,
    Plan,
    Reading,
    Seen,
)
from callkeeper.calls.rules import load_rules
from callkeeper.calls.rules.matching import Verdict
from callkeeper.calls.statuses import RESEARCH, STATUSES
from callkeeper.calls.steps import Deed, WriteDecision, WriteFacts
from tests.records import decide_record, facts_of_record, with_stored

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
BOOK = load_rules(None)


def seconds(n: float) -> timedelta:
    """Return a length of time."""
    return timedelta(seconds=n)


LISTED = Listed(listed_at=NOW, started_at=NOW - seconds(1), candidates=(Candidate(person_id="p-1"),))


def reading(**changes: Any) -> Reading:
    """Return what the service says of an assigned call about which nothing is decided."""
    return replace(
        Reading(read_at=NOW, voice_id="v-1", person_id="p-1", status="CheckRiskAndAuthentication"), **changes
    )


def call(**changes: Any) -> Call:
    """Return an assigned live call, just read, whose next check is due in 10 s."""
    ordinary = Call(
        institution_key="cu-1",
        voice_id="v-1",
        life=Life(
            phase=Phase.LIVE, listed_at=NOW - seconds(30), started_at=NOW - seconds(30), first_seen_at=NOW - seconds(30)
        ),
        seen=Seen(person_id="p-1", reading=reading()),
        plan=Plan(watch_from=NOW - seconds(29), next_check_at=NOW + seconds(10), next_read_at=NOW + seconds(5)),
        ledger=Ledger(assign=Effect(state=EffectState.APPLIED, person_id="p-1", sent_at=NOW - seconds(29), attempts=1)),
    )
    return with_stored(ordinary, **changes)


def read_again(before: Call, now: datetime = NOW, **changes: Any) -> Call:
    """Return a call after another reading."""
    return fold_reading(before, reading(read_at=now, **changes), BOOK, now)


def word(operator: str = "ann", **changes: Any) -> CallStatement:
    """Return what a person at the desk said."""
    return CallStatement(operator=operator, said_at=NOW, **changes)


def verified(by_desk: bool = True, person_id: str = "p-1", validation_type: str = "OneTimePasswordAuth") -> Identity:
    """Return the word that a caller was verified otherwise."""
    operator = "ann" if by_desk else None
    return Identity(
        person_id=person_id,
        validation_type=validation_type,
        by_desk=by_desk,
        established_at=NOW,
        operator=operator,
    )


def next_deed(
    before: Call, now: datetime = NOW, book: Any = BOOK, *, late: timedelta = timedelta(), busy: float = 0.0
) -> Deed:
    """Return the next step that is more than a line in the trail."""
    for _ in range(6):
        step = decide_record(before, book, now, late=late, busy=busy)
        signature = facts_of_record(before, book.policies).signature
        if isinstance(step, WriteFacts):
            return step.then
        if isinstance(step, WriteDecision) and isinstance(step.verdict, Verdict):
            before = replace(before, written=replace(before.written, verdict=step.verdict.fingerprint, facts=signature))
        elif isinstance(step, WriteDecision):
            before = replace(before, written=replace(before.written, assignment=step.verdict.fingerprint))
        else:
            return step
    raise AssertionError("decisions follow each other without end")


OFFSETS_S = (-20_000, -700, -121, -61, -25, -20, -9, -4, -2.001, -2, -1, -0.5, 0, 0.001, 0.5, 1, 2, 4, 9, 61, 20_000)
"""Before, at and after every length of time that decisions know."""

INSTANTS = st.sampled_from([NOW + seconds(offset) for offset in OFFSETS_S])
MAYBE = st.none() | INSTANTS
IDS = st.sampled_from(["p-1", "p-2", ""])
NAMED = st.none() | st.sampled_from(["ann", "bob"])
POLICIES = st.sampled_from(["Green Voice Authentication", "Green Manual Authentication", "Red High Risk", "Yellow"])
TEXTS = st.sampled_from([*STATUSES, "Brand New Status", ""])

EFFECTS = st.builds(
    Effect,
    state=st.sampled_from(EffectState),
    person_id=st.none() | IDS,
    validation_type=st.none() | st.sampled_from(["OneTimePasswordAuth", "KnowledgeBasedAuth"]),
    operator=NAMED,
    intended_at=MAYBE,
    was_read_since=st.booleans(),
    sent_at=MAYBE,
    attempts=st.integers(0, 5),
    status_before=st.none() | TEXTS,
)
READINGS = st.builds(
    Reading,
    read_at=INSTANTS,
    voice_id=st.none() | st.sampled_from(["v-1", "v-2"]),
    person_id=st.none() | IDS,
    core_username=NAMED,
    status=st.none() | TEXTS,
    policies=st.lists(POLICIES, max_size=3).map(tuple),
    has_ended=st.booleans(),
    is_voice_verified=st.booleans(),
    is_voice_mismatch=st.booleans(),
    is_high_risk_device=st.booleans(),
    is_voice_enrolled=st.booleans(),
    was_voice_enrolled_now=st.booleans(),
    research_status=st.none() | st.sampled_from([*RESEARCH, "Escalated"]),
    research_voice_id=st.none() | st.sampled_from(["v-1", "v-2"]),
)
IDENTITIES = st.builds(
    Identity,
    person_id=IDS,
    validation_type=st.sampled_from(["OneTimePasswordAuth", "KnowledgeBasedAuth", "Other"]),
    by_desk=st.booleans(),
    established_at=INSTANTS,
    operator=NAMED,
)
WORDS = st.builds(CallStatement, operator=st.sampled_from(["ann", "bob"]), said_at=INSTANTS, person_id=st.none() | IDS)
CANDIDATES = st.lists(
    st.builds(Candidate, person_id=IDS, person_type=st.none() | st.sampled_from(["Primary", "Joint"])), max_size=3
).map(tuple)

FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "phase": st.sampled_from(Phase),
    "needs_verifying": st.booleans(),
    "hinted_at": MAYBE,
    "confirm_looks": st.integers(0, 6),
    "listed_at": MAYBE,
    "started_at": MAYBE,
    "first_seen_at": MAYBE,
    "not_found_since": MAYBE,
    "end_hinted_at": MAYBE,
    "end_seen_at": MAYBE,
    "final_since": MAYBE,
    "person_id": st.none() | IDS,
    "core_username": NAMED,
    "candidates": CANDIDATES,
    "standing": st.none() | st.sampled_from([FOREIGN, UNKNOWN, "not_active"]),
    "reading": st.none() | READINGS,
    "authenticated_seen": st.booleans(),
    "rejected_seen": st.booleans(),
    "enrolled_seen": st.booleans(),
    "opted_out_seen": st.booleans(),
    "earlier_marks": st.none() | st.builds(Marks, kinds=st.lists(st.sampled_from(Mark), unique=True).map(tuple)),
    "identity": st.none() | IDENTITIES,
    "distrusted": st.none() | WORDS,
    "assign_wish": st.none() | WORDS,
    "check_wish": st.none() | WORDS,
    "checks_used": st.integers(0, 20),
    "checks_failed": st.integers(0, 9),
    "watch_from": MAYBE,
    "next_check_at": MAYBE,
    "next_read_at": MAYBE,
    "reads_failed": st.integers(0, 9),
    "last_check_at": MAYBE,
    "assign": EFFECTS,
    "enroll": EFFECTS,
    "reject": EFFECTS,
}


DESK_RULE, DISTRUST_RULE = (
    next(rule for rule in BOOK.rules if rule.name == name) for name in ("verified at the desk", "distrusted")
)
BY_DESK = Effect(
    state=EffectState.INTENDED,
    person_id="p-1",
    validation_type="OneTimePasswordAuth",
    operator="ann",
    rule=DESK_RULE.name,
    because=DESK_RULE.because,
)
"""The intention of an enroll of the ordinary call, once somebody has verified the caller at the desk."""
TO_REJECT = Effect(
    state=EffectState.INTENDED,
    person_id="p-1",
    operator="ann",
    rule=DISTRUST_RULE.name,
    because=DISTRUST_RULE.because,
    was_read_since=True,
)
TO_ASSIGN = Effect(state=EffectState.INTENDED, person_id="p-1")
UNASSIGNED: dict[str, Any] = {
    "person_id": None,
    "listed_at": NOW,
    "candidates": (Candidate(person_id="p-1"),),
    "reading": None,
    "watch_from": None,
    "next_check_at": None,
}

BEGINNINGS = {
    "wait": call(),
    "rest": call(phase=Phase.SETTLED),
    "wait for the queue": Call(institution_key="cu-1", voice_id="v-1"),
    "check": call(next_check_at=NOW - seconds(1)),
    "intend assign": call(**UNASSIGNED, assign=Effect()),
    "send assign": call(**UNASSIGNED, assign=TO_ASSIGN),
    "intend enroll": call(identity=verified()),
    "read before enroll": call(identity=verified(), enroll=BY_DESK),
    "send enroll": call(identity=verified(), enroll=replace(BY_DESK, was_read_since=True)),
    "intend reject": call(distrusted=word()),
    "send reject": call(distrusted=word(), reject=TO_REJECT),
    "settle": call(
        phase=Phase.ENDED,
        end_seen_at=NOW - seconds(4),
        final_since=NOW - seconds(9),
        reading=reading(has_ended=True),
    ),
}
"""Calls whose next step, if there is nothing else, is the one that names them."""


@st.composite
def calls_near(draw: st.DrawFn, *beginnings: str, fields: Collection[str] = FIELDS, most: int = 3) -> Call:
    """Draw a call that differs from one of some beginnings in a few of some fields.

    A law about a step names the beginnings that lead to it and the fields that must prevent it. Otherwise hardly any
    example would meet the step.
    """
    names = draw(st.lists(st.sampled_from(sorted(fields)), max_size=most, unique=True))
    begun = BEGINNINGS[draw(st.sampled_from(beginnings))]
    return with_stored(begun, **{name: draw(FIELDS[name]) for name in names})


CALLS = calls_near(*BEGINNINGS, most=8)
"""Every call there could be, sensible or not."""

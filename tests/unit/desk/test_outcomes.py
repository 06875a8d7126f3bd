"""Which lines of a trail are outcomes."""

from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from calls.ledger import EffectKind, EffectState
from calls.outcomes import outcomes
from calls.trail import Entry

AT = datetime(2026, 11, 21, 12, tzinfo=UTC)


def line(what: Any, **fields: Any) -> Entry:
    """Return a line of a trail."""
    return Entry(at=AT, what=what, **fields)


def told(*lines: Entry) -> list[str]:
    """Return the types of a trail's outcomes."""
    return [outcome.type for outcome in outcomes(lines)]


GREEN = line("facts", facts={"green": True})
SENT = line("sent", kind="enroll")
IN_DOUBT = line("facts", facts={"enrolled": True})
APPLIED = line("answered", kind="enroll", state="applied")
HELD = line("decided", kind="hold", asked="enroll", forbidden=("paused",))


def test_outcomes_come_once_and_in_order() -> None:
    """What stays true is told when it became so, and not again."""
    assert told(GREEN, GREEN, line("settled", because="authenticated")) == ["authenticated", "settled"]


def test_enroll_in_doubt_is_not_told_as_enrolled() -> None:
    """The law counts an enroll in doubt as one; the world is told when it is known."""
    assert told(SENT, line("answered", kind="enroll", state="unknown"), IN_DOUBT) == []
    assert told(SENT, APPLIED, IN_DOUBT) == ["enrolled"]
    assert told(SENT, IN_DOUBT, line("established", kind="enroll", state="unresolved")) == ["unresolved"]
    assert told(IN_DOUBT) == ["enrolled"], "somebody else did it"


def test_held_is_told_when_it_is_news() -> None:
    """The same reason twice in a row is one outcome; nothing asked for, or a reason that passes by itself, is none."""
    other = line("decided", kind="hold", asked="enroll", forbidden=("opted_out",))
    assert told(HELD, HELD, other, HELD) == ["held", "held", "held"]
    assert told(line("decided", kind="hold", asked="hold")) == []
    assert told(line("decided", kind="hold", asked="enroll", forbidden=("voice_id_not_confirmed",))) == []


LINES = st.builds(
    Entry,
    at=st.just(AT),
    what=st.sampled_from(["facts", "decided", "sent", "answered", "established", "settled", "read"]),
    kind=st.sampled_from([*EffectKind, "hold", None]),
    state=st.sampled_from([*EffectState, None]),
    asked=st.sampled_from(["enroll", "reject", "hold", None]),
    forbidden=st.sampled_from([(), ("paused",), ("voice_id_not_confirmed",)]),
    facts=st.sampled_from([None, {"green": True}, {"rejected": True, "enrolled": True}]),
)


@given(st.lists(LINES, max_size=30), st.integers(0, 30))
def test_outcomes_of_a_longer_trail_begin_with_those_of_the_shorter(trail: list[Entry], cut: int) -> None:
    """However far a trail has grown, what was sent keeps its number: a cursor is a count."""
    assert outcomes(trail)[: len(outcomes(trail[:cut]))] == outcomes(trail[:cut])

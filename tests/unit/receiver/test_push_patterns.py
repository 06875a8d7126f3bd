"""How pushes are delivered: once or twice, in order or not, with both ids or one."""

import pytest

from callkeeper.service.push_event import PushEvent
from receiver.push_patterns import MOST, PushPatterns

ID = "6f9619ff-8b86-d011-b42d-00c04fc964ff"


def push(kind: str = "CallStart", voice_id: str | None = ID, *, is_test: bool | None = None) -> PushEvent:
    """Return a push."""
    return PushEvent(
        type=kind, institution_key="cu-1", voice_id=voice_id, alternate_voice_id="alternate", is_test=is_test
    )


@pytest.mark.parametrize(
    ("pushes", "expected"),
    [
        ([push(), push("CallEnd")], ["usual", "usual"]),
        ([push(), push(voice_id=ID.upper())], ["usual", "events-doubled"]),
        ([push("CallEnd"), push()], ["usual", "events-reversed"]),
        ([push(voice_id=None)], ["events-alternate-id"]),
        ([push(is_test=True), push("CallMoved")], []),
    ],
    ids=["in order", "twice", "reversed", "alternate id", "no events of calls"],
)
def test_delivery_is_recognised(pushes: list[PushEvent], expected: list[str]) -> None:
    """Each push is counted once; samples and unknown types say nothing."""
    patterns = PushPatterns()
    shown = [patterns.shown(event) for event in pushes]
    assert [one.answer for one in shown if one is not None] == expected


def test_only_the_last_calls_are_remembered() -> None:
    """However many calls come, memory does not grow; what is forgotten counts as new."""
    patterns = PushPatterns()
    shown = [patterns.shown(push(voice_id=f"v-{number}")) for number in [*range(MOST + 1), 0]]
    assert {one.answer for one in shown if one is not None} == {"usual"}
    repeated = patterns.shown(push(voice_id=f"v-{MOST - 1}"))
    assert repeated is not None
    assert repeated.answer == "events-doubled"

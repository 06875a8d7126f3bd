"""What the doctor says of one call: each promise holds, does not, or was not seen."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from callkeeper.app.doctor.finding import Finding, Severity
from callkeeper.app.doctor.one_call import judge
from callkeeper.calls.item_names import CallId
from callkeeper.calls.record import Call
from callkeeper.calls.trail import Entry, What
from tests.records import with_stored

BEGUN = datetime(2026, 11, 21, 12, tzinfo=UTC)
PERSONAL = ("v-secret", "alt-secret", "5551234567", "p-secret", "agent-secret", "Because of Ada")
OK, UNSEEN, BROKEN = Severity.OK, Severity.WARNING, Severity.FAULT
PROMISES = ("start", "listed", "named", "clock", "assigned", "checks", "end", "noticed", "settled", "effects")


def at(seconds: float) -> datetime:
    """Return an instant of the call."""
    return BEGUN + timedelta(seconds=seconds)


def entry(seconds: float, what: What, **more: Any) -> Entry:
    """Return an entry of its trail."""
    return Entry(at=at(seconds), what=what, **more)


TRAIL = (
    entry(10.0, "pushed", kind="start"),
    entry(10.4, "listed", candidates=1),
    entry(15.0, "read", person_id="p-secret", status="GrabbedCall"),
    entry(15.0, "decided", rules="digest-1", rule="otherwise", because="Because of Ada"),
    entry(25.0, "checked", n=1, took_ms=120, person_id="p-secret", operator="agent-secret"),
    entry(40.0, "pushed", kind="end"),
    entry(40.2, "ended"),
    entry(43.4, "settled", because="undecided", n=1),
)
CALL = with_stored(
    Call(institution_key="cu-1", voice_id="v-secret"),
    alternate_id="alt-secret",
    phone_number="5551234567",
    started_at=at(9.5),
    checks_used=1,
)


def without(*kinds: str) -> tuple[Entry, ...]:
    """Return the trail without some entries, named by what they say, or by that and their kind."""
    return tuple(line for line in TRAIL if not {line.what, f"{line.what} {line.kind}"} & set(kinds))


def moved(what: str, seconds: float) -> tuple[Entry, ...]:
    """Return the trail with one kind of entry at another time."""
    return tuple(
        replace(line, at=at(seconds)) if what in {line.what, f"{line.what} {line.kind}"} else line for line in TRAIL
    )


def judged(trail: Sequence[Entry] = TRAIL, call: Call = CALL, now_s: float = 45) -> dict[str, Finding]:
    """Return the finding of each promise."""
    return dict(zip(PROMISES, judge(CallId("cu-1", "v-secret"), call, trail, at(now_s)), strict=True))


def test_good_call_holds_every_promise() -> None:
    """A call whose trail is in order has ten lines without a problem, which name the institution and nobody."""
    found = judged()
    assert {each.severity for each in found.values()} == {OK}
    assert {each.what for each in found.values()} == {"call cu-1"}
    assert [text for text in PERSONAL for each in found.values() if text in each.detail + each.remedy] == []


UNDER_WAY = without("pushed end", "ended", "settled")

CASES: dict[str, tuple[dict[str, Any], dict[str, Severity]]] = {
    "no push of the start": ({"trail": without("pushed start")}, {"start": BROKEN}),
    "a late push of the start": ({"trail": moved("pushed start", 22)}, {"start": BROKEN}),
    "never listed": ({"trail": without("listed")}, {"listed": BROKEN}),
    "listed late": ({"trail": moved("listed", 21)}, {"listed": BROKEN}),
    "named by its push alone": (
        {"trail": TRAIL[:1]},
        dict.fromkeys(("named", "assigned", "checks", "end", "noticed", "settled"), UNSEEN) | {"listed": BROKEN},
    ),
    "an answer about another call": ({"call": with_stored(CALL, other_voice_id="v-other")}, {"named": BROKEN}),
    "the service's clock ahead": ({"call": with_stored(CALL, started_at=at(14))}, {"clock": BROKEN}),
    "the service's clock behind": ({"call": with_stored(CALL, started_at=at(-6))}, {"clock": BROKEN}),
    "no start told": ({"call": with_stored(CALL, started_at=None)}, {"clock": UNSEEN}),
    "nobody assigned": ({"trail": without("read", "checked")}, {"assigned": UNSEEN, "checks": UNSEEN}),
    "no check answered": (
        {"trail": (*without("checked"), entry(25, "check_failed"))},
        {"checks": BROKEN},
    ),
    "a 21st check": ({"call": with_stored(CALL, checks_used=21)}, {"checks": BROKEN}),
    "under way": ({"trail": UNDER_WAY}, dict.fromkeys(("end", "noticed", "settled"), UNSEEN)),
    "no push of the end": ({"trail": without("pushed end")}, {"end": BROKEN}),
    "an end that is not noticed": (
        {"trail": (*UNDER_WAY, entry(30, "pushed", kind="end"))},
        {"noticed": BROKEN, "settled": UNSEEN},
    ),
    "an end that is noticed late": ({"trail": moved("ended", 51)}, {"noticed": BROKEN}),
    "not settled": ({"trail": without("settled"), "now_s": 170}, {"settled": BROKEN}),
    "not settled yet": ({"trail": without("settled")}, {"settled": UNSEEN}),
    "settled late": ({"trail": moved("settled", 161)}, {"settled": BROKEN}),
    "a decision without rules": ({"trail": (*TRAIL, entry(16, "decided"))}, {"effects": BROKEN}),
    "an enroll": ({"trail": (*TRAIL, entry(30, "sent", kind="enroll"))}, {"effects": UNSEEN}),
}


@pytest.mark.parametrize("case", CASES)
def test_promise_is_judged_by_what_was_seen(case: str) -> None:
    """Each case changes the promises that it is about, and no other; whatever is not well says what to do."""
    given, wanted = CASES[case]
    found = judged(**given)
    assert {name: each.severity for name, each in found.items() if each.severity is not OK} == wanted
    assert [name for name, each in found.items() if each.severity is BROKEN and not each.remedy] == []

"""What a call that is over contradicts of the assumptions about the service."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from callkeeper.calls.effect_ledger import Effect, EffectState
from callkeeper.calls.effect_resolution import NOT_SHOWN
from callkeeper.calls.record import Call
from callkeeper.calls.survey import judged
from callkeeper.service.answer_tap import CallSample, Shown
from callkeeper.service.endpoints import ENROLL
from tests.unit.calls.specimens import NOW, call, reading

ENDED = NOW + timedelta(seconds=60)
USUAL = {"core_username": "bot", "created_at": NOW - timedelta(seconds=31)}


def over(
    assign: dict[str, Any] | None = None,
    enroll: dict[str, Any] | None = None,
    shows: dict[str, Any] | None = None,
    **more: Any,
) -> Call:
    """Return a call that has ended as assumed, but for fields of its assign, its enroll, its last reading and others."""
    known = call()
    ledger = replace(
        known.ledger, assign=replace(known.ledger.assign, **(assign or {})), enroll=Effect(**(enroll or {}))
    )
    seen = replace(known.seen, reading=reading(**USUAL | (shows or {})), person_id=more.get("person_id", "p-1"))
    plan = replace(known.plan, recheck_from=more.get("recheck_from"))
    names = replace(known.names, alternate_id=more.get("alternate_id"))
    life = replace(known.life, ended_at=ENDED)
    return replace(known, ledger=ledger, seen=seen, plan=plan, names=names, life=life)


REFUSED = {"state": EffectState.REFUSED}
SAMPLE = CallSample(0.0, alternate_ids=frozenset({"a-1"}), turned_away={ENROLL.name: 429})


@pytest.mark.parametrize(
    ("known", "sample", "told"),
    [
        (over(), None, []),
        (over(), CallSample(0.0, shown={Shown("activity-moves-updated", "updated-stays")}), ["updated-stays"]),
        (over(shows={"created_at": NOW - timedelta(hours=5)}), None, ["starts-in-future"]),
        (over(shows={"created_at": NOW + timedelta(hours=5)}), None, ["starts-earlier"]),
        (over(shows={"core_username": None}), None, ["assign-without-username"]),
        (over(assign=REFUSED), None, []),
        (over(assign=REFUSED, person_id="p-2"), None, ["assign-over-refused"]),
        (over(assign=REFUSED | {"refusal": NOT_SHOWN}, person_id="p-2"), None, ["assign-over-ignored"]),
        (over(enroll=REFUSED | {"sent_at": NOW}), None, []),
        (over(enroll=REFUSED | {"sent_at": ENDED + timedelta(seconds=1)}), None, ["effects-after-end-refused"]),
        (
            over(
                enroll={"state": EffectState.APPLIED},
                shows={"status": "FullAuthentication", "read_at": NOW + timedelta(seconds=20)},
                recheck_from=NOW,
            ),
            None,
            ["unenrolled-silently"],
        ),
        (over(alternate_id="a-1"), SAMPLE, []),
        (over(alternate_id="a-2"), SAMPLE, ["alternate-id-elsewhere"]),
        (over(enroll={"state": EffectState.CONFIRMED}), SAMPLE, ["429-after-acting"]),
        (over(enroll={"state": EffectState.ABSENT}), SAMPLE, []),
    ],
    ids=range(15),
)
def test_call_that_is_over_tells_what_it_contradicts(known: Call, sample: CallSample | None, told: list[str]) -> None:
    """Once, from its record and what was sampled of its answers; a call that went as assumed tells nothing."""
    assert [shown.answer for shown in judged(known, sample)] == told

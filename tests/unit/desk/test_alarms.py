"""In which order a page shows its alarms, and what each advises."""

from dataclasses import replace

import pytest

from callkeeper.calls.effect_resolution import (
    ENDLESS,
    GIVEN_UP,
    HELD_BACK,
    OPTED_OUT,
    RECORD_LOST,
    REFUSED_BY_SERVICE,
)
from callkeeper.calls.record import ASKED
from callkeeper.desk.board.alarms import Alarm, merged, words_of
from callkeeper.desk.board.states import StateTone


def alarm(title: str, tone: StateTone, *, is_incident: bool = False, known: str = "") -> Alarm:
    """Return an alarm."""
    return Alarm(
        slot=f"a-{title}",
        tone=tone,
        title=title,
        advice="Look.",
        where="",
        address=None,
        since=None,
        institution_key="",
        section="",
        is_incident=is_incident,
        known=known,
    )


def test_incidents_stand_before_calls_and_what_is_known_stands_last() -> None:
    """A page shows a few. Many calls on which a rule asks must not hide a worker that vanished."""
    alarms = [
        alarm("known page", StateTone.BAD, is_incident=True, known="by ann"),
        alarm("rule asks", StateTone.BAD),
        alarm("worker vanished", StateTone.WARN, is_incident=True),
        alarm("no web", StateTone.BAD, is_incident=True),
    ]
    assert [each.title for each in merged(alarms)] == ["no web", "worker vanished", "rule asks", "known page"]


def test_card_of_many_institutions_says_of_whom_its_numbers_are() -> None:
    """What is true of one of them alone stands after its key."""
    many = [
        replace(alarm("away", StateTone.WARN, is_incident=True), slot=f"a-{n}", where=key, institution_key=key)
        for n, key in enumerate(("cu-1", "cu-2", "cu-3"))
    ]
    assert [each.advice for each in merged(many)] == ["Look."]
    differing = [replace(each, advice=f"{n} failed.") for n, each in enumerate(many)]
    assert [each.advice for each in merged(differing)] == ["Of cu-1: 0 failed."]


@pytest.mark.parametrize(
    ("why", "title", "advice"),
    [
        (f"enroll not carried out: {RECORD_LOST}", "Enroll not carried out", "Somebody may have rejected the voice"),
        (ENDLESS, "Call never ends", "If nobody is on the line, tell the service's operator"),
        (OPTED_OUT, "Caller opted out, voice still enrolled", "Ask the service's operator to remove the voiceprint"),
        (
            f"reject not carried out: {HELD_BACK}",
            "Reject not carried out",
            "The call's story says why nothing was sent",
        ),
        (f"reject {GIVEN_UP}", "Reject not carried out", "take back an enroll of the member that came later"),
        (f"enroll {REFUSED_BY_SERVICE}: case unresolved", "Enroll refused by the service", "case unresolved"),
        (f"enroll {REFUSED_BY_SERVICE}: Try later.", "Enroll refused by the service", "not applied: Try later. Do it"),
        (
            f"{ASKED} 'enroll {REFUSED_BY_SERVICE}'",
            f"Rule 'enroll {REFUSED_BY_SERVICE}' asks a person",
            "you have seen",
        ),
    ],
    ids=[
        "record-lost",
        "never ends",
        "opted-out",
        "held-back",
        "reject-given-up",
        "service-says-unresolved",
        "a-sentence",
        "rule-named-like-a-refusal",
    ],
)
def test_alarm_advises_what_fits_its_reason(why: str, title: str, advice: str) -> None:
    """An enroll that is given up undoes nothing, and the words of the service or of a rule are no reason of ours."""
    words = words_of(why)
    assert words.title.removesuffix(" about a call") == title
    assert advice in words.advice

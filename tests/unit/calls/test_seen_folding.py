"""Tests of what is kept of what a call showed: what another member showed says nothing of this one."""

import pytest
from msgspec.structs import replace

from callkeeper.calls.record import History, Seen
from callkeeper.calls.seen_folding import (
    FULL_AUTHENTICATION,
    MISMATCH,
    in_doubt,
    of_member,
    shown_of_voice,
    with_answered_check,
)
from tests.unit.calls.specimens import reading

GREEN, RED = "Green Voice", "Red Device"


@pytest.mark.parametrize(
    ("reading_shows", "words"),
    [
        ({}, ()),
        ({"policies": (GREEN, RED)}, (GREEN, RED)),
        ({"status": "VoiceMismatch"}, (MISMATCH,)),
        ({"is_voice_mismatch": True}, (MISMATCH,)),
        ({"status": "FullAuthentication"}, ()),
        ({"status": "FullAuthentication", "is_voice_verified": True}, (FULL_AUTHENTICATION,)),
        ({"is_voice_verified": True}, ()),
    ],
)
def test_reading_shows_of_the_voice(reading_shows: dict[str, object], words: tuple[str, ...]) -> None:
    """Policies, a mismatch in either form, and an authentication that the voice brought."""
    assert shown_of_voice(reading(**reading_shows)) == words
    assert shown_of_voice(None) == ()


@pytest.mark.parametrize(
    ("before", "now", "doubtful"),
    [
        (Seen(person_id="p-1"), "p-1", ()),
        (Seen(), "p-1", ()),
        (Seen(person_id="p-1"), "p-2", (GREEN, RED)),
        (Seen(person_id="p-2", member_before="p-1", of_another=(GREEN,)), "p-2", (GREEN,)),
        (Seen(person_id="p-2", member_before="p-1", of_another=(GREEN,)), "p-1", (RED,)),
        (Seen(person_id="p-2", member_before="p-1", of_another=(GREEN,)), "p-3", (GREEN, RED)),
    ],
)
def test_evidence_in_doubt(before: Seen, now: str, doubtful: tuple[str, ...]) -> None:
    """What stood there under another member; a member who comes back gets their own back, and not the other's."""
    assert in_doubt(before, now, (GREEN, RED)) == doubtful


def test_evidence_in_doubt_that_is_gone_is_in_doubt_no_longer() -> None:
    """If the service applies a policy anew after it was gone, the voice was compared anew."""
    assert in_doubt(Seen(person_id="p-2", of_another=(GREEN,)), "p-2", (RED,)) == ()


def test_voice_of_the_member_before_is_forgotten() -> None:
    """What is not of the voice stays: an opt-out, a risky device, that it was red."""
    before = Seen(
        person_id="p-1",
        reading=reading(policies=(GREEN,)),
        authenticated=True,
        full_authentication=True,
        mismatch=True,
        red=True,
        risky_device=True,
        opted_out=True,
        history=History().with_answer(1, (GREEN,), ("voice_mismatch", "high_risk_device")),
    )
    seen = of_member(before, "p-2")
    assert (seen.authenticated, seen.full_authentication, seen.mismatch) == (False, False, False)
    assert seen.authenticated_members == ("p-1",)
    assert (seen.red, seen.risky_device, seen.opted_out) == (True, True, True)
    assert (set(seen.history.policies.values()), set(seen.history.signs)) == ({0}, {"high_risk_device"})
    assert (seen.of_another, seen.member_before) == ((GREEN,), "p-1")


def test_what_the_voice_was_not_is_remembered_by_member() -> None:
    """A mismatch counts again for the member it was of, and for nobody else; so does a voice that was recognised."""
    first = Seen(person_id="p-1", mismatch=True, authenticated=True, expects_voice=True)
    second = of_member(first, "p-2")
    assert (second.mismatch, second.mismatched_members, second.expects_voice) == (False, ("p-1",), False)
    assert second.authenticated_members == ("p-1",)
    again = of_member(second, "p-1")
    assert (again.mismatch, again.mismatched_members) == (True, ("p-1",))
    third = of_member(again, "p-3")
    assert (third.mismatched_members, third.authenticated_members) == (("p-1",), ("p-1",))
    fourth = of_member(replace(third, mismatch=True, authenticated=True), "p-4")
    assert (fourth.mismatched_members, fourth.authenticated_members) == (("p-1", "p-3"), ("p-1", "p-3"))
    recognised = of_member(replace(third, authenticated=True, authenticated_members=("p-3",)), "p-1")
    assert recognised.authenticated_members == ("p-3",)


@pytest.mark.parametrize("person_id", [None, "p-1"])
def test_voice_is_kept_while_the_member_stays(person_id: str | None) -> None:
    """A reading that names nobody says nothing new of whom the call is."""
    before = Seen(person_id="p-1", authenticated=True, mismatch=True)
    assert of_member(before, person_id) is before


def test_voice_is_kept_when_the_first_member_is_assigned() -> None:
    """Before that, the call was nobody's: the provider may have compared the voice by the number."""
    assert of_member(Seen(authenticated=True), "p-1") == Seen(authenticated=True, person_id="p-1")


def test_mismatch_counts_once_a_check_has_compared_the_voice() -> None:
    """Policies stay in doubt: they stay on the record."""
    seen = Seen(person_id="p-2", of_another=(GREEN, MISMATCH))
    assert with_answered_check(seen, 1, reading(person_id="p-2"), (), can_tell=True).of_another == (GREEN,)

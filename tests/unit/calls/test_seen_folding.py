"""Tests of what is kept of what a call showed: once its member was changed, the voice says nothing of anybody."""

from typing import Any

import pytest

from callkeeper.calls.record import History, Seen
from callkeeper.calls.seen_folding import FULL_AUTHENTICATION, MISMATCH, of_member, shown_of_voice, with_answered_check
from tests.unit.calls.specimens import call, read_again, reading

GREEN, RED = "Green Voice", "Red Device"


@pytest.mark.parametrize(
    ("reading_shows", "words"),
    [
        ({}, ()),
        ({"policies": (GREEN, RED)}, (GREEN, RED)),
        ({"status": "VoiceMismatch"}, (MISMATCH,)),
        ({"is_voice_mismatch": True}, (MISMATCH,)),
        ({"status": "FullAuthentication"}, (FULL_AUTHENTICATION,)),
        ({"is_voice_verified": True}, ()),
    ],
)
def test_reading_shows_of_the_voice(reading_shows: dict[str, object], words: tuple[str, ...]) -> None:
    """Policies, a mismatch in either form, and an authentication."""
    assert shown_of_voice(reading(**reading_shows)) == words
    assert shown_of_voice(None) == ()


SHOWN: dict[str, Any] = {
    "a green policy": {"policies": (GREEN,)},
    "authentication": {"status": "FullAuthentication", "is_voice_verified": True},
    "an enroll": {"status": "FullAuthentication"},
    "a mismatch": {"is_voice_mismatch": True},
    "its status": {"status": "VoiceMismatch"},
}


@pytest.mark.parametrize("checks_used", [0, 3])
@pytest.mark.parametrize("members", [("p-2",), ("p-2", "p-1"), ("p-2", "p-3")], ids=" ".join)
@pytest.mark.parametrize("comes", ["before", "with the change"])
@pytest.mark.parametrize("shown", SHOWN.values(), ids=SHOWN)
def test_what_the_voice_showed_up_to_a_change_of_the_member_counts_for_nobody(
    shown: dict[str, Any], comes: str, members: tuple[str, ...], checks_used: int
) -> None:
    """Until the service shows something new: it was gone, and came again. Nor does it if the first member is back."""
    record = call(checks_used=checks_used)
    if comes == "before":
        record = read_again(record, **shown)
        seen = record.seen
        assert (seen.recognised or seen.mismatch or seen.full_authentication, seen.member_changed) == (True, False)
    for member in members:
        record = read_again(record, **{**shown, "person_id": member})
    for _ in range(2):
        seen = record.seen
        assert seen.member_changed
        assert not any((seen.authenticated, seen.full_authentication, seen.recognised, seen.mismatch))
        record = read_again(record, **{**shown, "person_id": members[-1]})
    anew = read_again(read_again(record, person_id=members[-1]), **{**shown, "person_id": members[-1]}).seen
    assert anew.recognised or anew.mismatch or anew.full_authentication
    assert anew.member_changed


def test_member_who_is_changed_before_the_first_check_is_an_ordinary_one() -> None:
    """Nothing was shown of the voice yet. That a result is to be expected was said of the member before."""
    seen = of_member(Seen(person_id="p-1", expects_voice=True, red=True), "p-2", 0)
    assert seen == Seen(person_id="p-2", red=True)
    assert of_member(seen, "p-3", 1).member_changed


def test_what_is_not_of_the_voice_stays() -> None:
    """An opt-out, a risky device, that it was red."""
    before = Seen(
        person_id="p-1",
        reading=reading(policies=(GREEN,)),
        red=True,
        risky_device=True,
        opted_out=True,
        history=History().with_answer(1, (GREEN,), ("voice_mismatch", "high_risk_device")),
    )
    seen = of_member(before, "p-2", 1)
    assert (seen.red, seen.risky_device, seen.opted_out) == (True, True, True)
    assert (set(seen.history.policies.values()), set(seen.history.signs)) == ({0}, {"high_risk_device"})
    assert seen.of_another == (GREEN,)


@pytest.mark.parametrize("person_id", [None, "p-1"])
def test_voice_is_kept_while_the_member_stays(person_id: str | None) -> None:
    """A reading that names nobody says nothing new of whom the call is."""
    before = Seen(person_id="p-1", authenticated=True, mismatch=True)
    assert of_member(before, person_id, 3) is before


def test_voice_is_kept_when_the_first_member_is_assigned() -> None:
    """Before that, the call was nobody's: the provider may have compared the voice by the number."""
    assert of_member(Seen(authenticated=True), "p-1", 3) == Seen(authenticated=True, person_id="p-1")


def test_mismatch_counts_once_a_check_has_compared_the_voice() -> None:
    """Policies stay in doubt: they stay on the record."""
    seen = Seen(person_id="p-2", of_another=(GREEN, MISMATCH))
    assert with_answered_check(seen, 1, reading(person_id="p-2"), (), can_tell=True).of_another == (GREEN,)

"""What a call leaves for later calls of its member."""

from typing import Any

import pytest
from msgspec.structs import replace

from callkeeper.calls.effect_ledger import Effect, EffectState
from callkeeper.calls.fact_derivation import has_opted_in
from tests.unit.calls.specimens import BOOK, NOW, call, seconds, verified, word

BY_PASSCODE: dict[str, Any] = {"identity": verified(by_desk=False), "assigned_person_id": "p-1"}
BY_VOICE: dict[str, Any] = {"authenticated_seen": True}
CORRECTED = replace(word(person_id="p-2"), said_at=NOW + seconds(1))
OPT_INS: dict[str, tuple[dict[str, Any], bool]] = {
    "nobody has verified the caller": ({}, False),
    "a person has": ({"identity": verified()}, True),
    "a person has, as another": ({"identity": verified(person_id="p-2")}, False),
    "a person has, and called another one since": (
        {"identity": verified(), "assign_wish": CORRECTED},
        False,
    ),
    "the service has": (BY_PASSCODE, True),
    "the voice has": (BY_VOICE, True),
    "the voice has, and a person calls another one": ({**BY_VOICE, "assign_wish": CORRECTED}, False),
    "a person has, before another member came": ({"identity": replace(verified(), is_past=True)}, False),
    "the service has, before another member came": (
        {**BY_PASSCODE, "identity": replace(verified(by_desk=False), is_past=True)},
        False,
    ),
    "the voice was enrolled": ({"enroll": Effect(state=EffectState.APPLIED, person_id="p-1")}, True),
    "it was enrolled as another's": ({"enroll": Effect(state=EffectState.APPLIED, person_id="p-2")}, False),
    "nobody is assigned": ({**BY_VOICE, "person_id": None}, False),
    "a person distrusts the caller": ({**BY_PASSCODE, "distrusted": word()}, False),
    "the voice was rejected": ({**BY_PASSCODE, "rejected_seen": True}, False),
    "the device is a risk": ({**BY_PASSCODE, "risky_device_seen": True}, False),
    "the voice is another": ({**BY_PASSCODE, "mismatch_seen": True}, False),
    "a person has not named that": ({"identity": verified(), "mismatch_seen": True}, False),
    "a person has overruled that": (
        {"identity": replace(verified(), despite=("voice_mismatch",)), "mismatch_seen": True},
        True,
    ),
    "an opt-out came after it": ({**BY_PASSCODE, "opted_out_seen": True}, False),
    "an opt-out came before it": ({**BY_PASSCODE, "opted_out_seen": True, "opted_in_last": True}, True),
    "nobody has opted in": ({**BY_PASSCODE, "opted_in_seen": False}, False),
}


@pytest.mark.parametrize(("seen", "counts"), OPT_INS.values(), ids=OPT_INS)
def test_opt_in_is_the_members_only_if_the_caller_is(seen: dict[str, Any], counts: bool) -> None:
    """An impostor's takes back no opt-out of the member. What is not clear counts as nobody's."""
    assert has_opted_in(call(**{"opted_in_seen": True, **seen}), BOOK.policies) == counts

"""Parsing of the service's answers drops personal data."""

import json

import msgspec
import pytest

from callkeeper.calls.facts import Colour, Policies
from callkeeper.calls.fold import reading_of
from callkeeper.calls.record import Reading
from callkeeper.service.answer_parsing import Reader
from callkeeper.service.phone_calls import PhoneCall
from tests.unit.calls.specimens import NOW
from tests.unit.calls.test_notes import CANARIES


def test_reading_keeps_no_scores_and_no_personal_data() -> None:
    """Raw scores, names, notes and numbers of the service's record have no field in ours (Spec: Vendor call)."""
    wire = {
        "voiceId": "v-1",
        "firstName": "Ada",
        "notes": "born 1900-01-01",
        "phoneNumber": "5550100001",
        "valueForCore": "core-p-1",
        "vendorEvents": [{"call": {"voiceScore": 99.5, "riskScore": "77"}}],
        "metaData": {"vendorPolicies": ["Green A"]},
    }
    kept = reading_of(Reader(PhoneCall).read(json.dumps(wire).encode()), NOW)
    assert kept == Reading(read_at=NOW, voice_id="v-1", policies=("Green A",))
    assert not [text for text in (*CANARIES, "99.5", "77", "Ada") if text in msgspec.json.encode(kept).decode()]


SHIPPED = Policies(green=("Green *",), red=("Red *",), neutral=("Yellow Review",))
COLOURS = {
    "Green Manual Authentication": Colour.GREEN,
    "Red High Risk": Colour.RED,
    "Yellow Review": Colour.NEUTRAL,
    "Yellow Revie": Colour.UNCLASSIFIED,
    "green manual": Colour.UNCLASSIFIED,
    "Greenish": Colour.UNCLASSIFIED,
    "": Colour.UNCLASSIFIED,
}


@pytest.mark.parametrize(("name", "colour"), COLOURS.items(), ids=[name or "empty" for name in COLOURS])
def test_policy_has_the_colour_its_name_was_given(name: str, colour: Colour) -> None:
    """A policy is known by its name only, and a name that no pattern covers is never guessed (D11)."""
    assert SHIPPED.colour(name) is colour


def test_policy_that_is_both_is_red() -> None:
    """If a name matches a green and a red pattern, it is red."""
    assert Policies(green=("* Review",), red=("Red *",)).colour("Red Review") is Colour.RED

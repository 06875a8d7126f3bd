"""Parsing of the service's answers drops personal data."""

import json

import msgspec
import pytest

from callkeeper.calls.facts import Colour, Policies
from callkeeper.calls.fold import reading_of
from callkeeper.calls.notes import encode_note, fingerprint, listed_of
from callkeeper.calls.record import Reading
from callkeeper.service.answer_parsing import Reader
from callkeeper.service.phone_calls import PhoneCall, QueueEntry
from tests.unit.calls.specimens import NOW

CANARIES = ("000-12-3456", "3456", "fake-licence", "fake-support", "1900-01-01", "core-p-1", "5550100001")
PERSON = {
    "firstName": "Ada",
    "lastName": "Example",
    "name": "Ada Example",
    "personId": "p-1",
    "personType": "Primary",
    "last4Ssn": "3456",
    "fullSsn": "000-12-3456",
    "driverLicense": {"number": "fake-licence", "issuer": "XX", "expirationDate": "2099-01-01"},
    "valueForCore": "core-p-1",
    "dateOfBirth": "1900-01-01",
    "supportPassword": "fake-support",
}


def entry(*persons: object, **changes: object) -> QueueEntry:
    """Return an entry of the queue, read from its wire form."""
    wire = {"voiceId": "v-1", "startDateTime": "2026-11-21T12:00:00Z", "phoneNumber": "", "persons": persons, **changes}
    return Reader(QueueEntry).read(json.dumps(wire).encode())


def test_listing_keeps_three_fields_of_a_person() -> None:
    """Of a candidate stay id, name and type: nothing sensitive reaches a note (promise 6)."""
    stored = encode_note(listed_of(entry(PERSON), NOW))
    assert json.loads(stored)["candidates"] == [{"person_id": "p-1", "name": "Ada Example", "person_type": "Primary"}]
    assert not [canary for canary in CANARIES if canary in stored.decode()]


CANDIDATES = {
    "none": ((), 0),
    "one": ((PERSON,), 1),
    "two": ((PERSON, {**PERSON, "personId": "p-2"}), 2),
    "the same twice": ((PERSON, PERSON), 1),
    "one without an id": (({**PERSON, "personId": None},), 1),
    "two without an id": (({**PERSON, "personId": ""}, {**PERSON, "personId": None}), 2),
}


@pytest.mark.parametrize(("persons", "count"), CANDIDATES.values(), ids=CANDIDATES)
def test_listing_counts_different_candidates(persons: tuple[object, ...], count: int) -> None:
    """The same person twice is one candidate; one without an id counts, and can never be assigned (D10)."""
    assert len(listed_of(entry(*persons), NOW).candidates) == count


def test_fingerprint_changes_with_what_a_call_wants_to_know() -> None:
    """The fingerprint depends on person, claim and candidates, not on the time of the listing."""
    plain = fingerprint(listed_of(entry(PERSON), NOW))
    assert fingerprint(listed_of(entry(PERSON), NOW.replace(hour=13))) == plain
    others = [entry(), entry({**PERSON, "personId": "p-2"}), entry(PERSON, PERSON | {"personId": "p-2"})]
    others += [entry(PERSON, personId="p-1"), entry(PERSON, coreUsername="ann")]
    assert len({plain, *(fingerprint(listed_of(other, NOW)) for other in others)}) == 6


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

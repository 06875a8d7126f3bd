"""Notes: what of a queue's entry is kept, and when it is told again."""

import json
from itertools import combinations

import pytest

from callkeeper.calls.notes import Pushed, encode_note, fingerprint, fold_order, is_same_entry, listed_of
from callkeeper.service.answer_parsing import Reader
from callkeeper.service.phone_calls import QueueEntry
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
    """The fingerprint depends on person, claim, candidates and number, not on the time of the listing."""
    one, two = {"phoneNumber": "5550100111"}, {"phoneNumber": "5550100222"}
    plain = fingerprint(listed_of(entry(PERSON, **one), NOW))
    assert fingerprint(listed_of(entry(PERSON, **one), NOW.replace(hour=13))) == plain
    other = PERSON | {"personId": "p-2"}
    others = [entry(**one), entry(other, **one), entry(PERSON, other, **one), entry(PERSON, **two)]
    others += [entry(PERSON, **one, personId="p-1"), entry(PERSON, **one, coreUsername="ann")]
    prints = [plain, *(fingerprint(listed_of(other, NOW)) for other in others)]
    assert len(set(prints)) == 7
    assert [is_same_entry(one, other) for one, other in combinations(prints, 2)] == [False] * 21


def test_entry_with_a_number_after_one_without_is_a_change() -> None:
    """Not the other way round."""
    numbered = fingerprint(listed_of(entry(PERSON, phoneNumber="5550100111"), NOW))
    bare = fingerprint(listed_of(entry(PERSON), NOW))
    assert not is_same_entry(numbered, bare)
    for after, before in ((bare, numbered), (bare, bare), (numbered, numbered)):
        assert is_same_entry(after, before)
    assert not is_same_entry(numbered, fingerprint(listed_of(entry(PERSON, personId="p-1"), NOW)))


def test_pushes_are_folded_as_they_were_recorded() -> None:
    """A start that nobody has read before the end came, too, did not come after it."""
    start, end = (
        Pushed(has_ended=has_ended, event_id="ev", received_at=NOW, recorded_ms=ms)
        for has_ended, ms in ((False, 1000), (True, 31_000))
    )
    assert sorted([end, start], key=fold_order) == [start, end]

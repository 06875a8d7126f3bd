"""Reading answers: whatever an answer holds, it is read or refused with a typed error, never with a crash."""

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callkeeper.calls.reading_folding import policies_of
from callkeeper.service import AnswerUnreadable, PersonMatch, PhoneCall, ResellerError, Secret
from callkeeper.service.answer_meaning import institution_list, verdict
from callkeeper.service.answer_parsing import Reader, Unreadable
from callkeeper.service.answer_records import BaseAnswer, DetailsAnswer, QueueAnswer
from callkeeper.service.endpoints import DETAILS, QUEUE, Endpoint, ServiceResponse
from tests.unit.service.service import responded
from tests.unit.service.spec_tables import RECORDS

QUEUE_READER = Reader(QueueAnswer)
DETAILS_READER = Reader(DetailsAnswer)
READERS: dict[str, tuple[Endpoint, Reader[Any]]] = {
    "QueueAnswer": (QUEUE, QUEUE_READER),
    "DetailsAnswer": (DETAILS, DETAILS_READER),
}

SAMPLES: dict[str, Any] = {
    "text": "text",
    "word": "Word",
    "instant": "2026-03-01T10:00:00Z",
    "bool": True,
    "int": 7,
    "number": 1.5,
    "secret": "123-45-6789",
}

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def sample(name: str, depth: int = 2) -> dict[str, Any]:
    """Make a full answer from the Spec's table; records nest to a depth."""
    return {field: _sample(family.removesuffix("?"), depth) for field, family in RECORDS[name].items()}


def _sample(family: str, depth: int) -> Any:
    if family.startswith("["):
        return [_sample(family[1:-1], depth)] if depth else []
    if family in RECORDS:
        return sample(family, depth - 1) if depth else None
    return SAMPLES[family]


def optional_places(name: str, value: dict[str, Any], path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """List where the Spec allows null, inside too."""
    places = []
    for field, family in RECORDS[name].items():
        here = (*path, field)
        if family.endswith("?"):
            places.append(here)
        inner = family.removesuffix("?").strip("[]")
        if inner in RECORDS and value.get(field):
            is_list = isinstance(value[field], list)
            nested = value[field][0] if is_list else value[field]
            places += optional_places(inner, nested, (*here, 0) if is_list else here)
    return places


def change(value: Any, path: tuple[Any, ...], how: str, new: Any) -> None:
    """Drop, null or replace what is at a path; add a field beside it."""
    *outer, last = path
    for step in outer:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):  # an earlier change took this place away
            return
    if not isinstance(value, dict):
        return
    match how:
        case "drop":
            value.pop(last, None)
        case "null":
            value[last] = None
        case "retype":
            value[last] = new
        case "add":
            value[f"{last}2"] = new


def error_of(endpoint: Endpoint, answer: ServiceResponse, reader: Reader[Any]) -> ResellerError | None:
    """Return the error that an answer amounts to; anything but one of ours goes through."""
    try:
        verdict(endpoint, answer, reader)
    except ResellerError as error:
        return error
    return None


@pytest.mark.parametrize("name", READERS)
@given(data=st.data())
def test_answer_with_changed_optional_fields_is_read_or_refused(name: str, data: st.DataObject) -> None:
    """Drop, null, add, retype any optional fields: a record, or an error of ours that shows no value."""
    endpoint, reader = READERS[name]
    body = sample(name)
    places = st.sampled_from(optional_places(name, body))
    changes = st.tuples(places, st.sampled_from(["drop", "null", "retype", "add"]), anything)
    for path, how, new in data.draw(st.lists(changes, max_size=8)):
        change(body, path, how, new)
    error = error_of(endpoint, responded(200, json.dumps(body).encode()), reader)
    if error is not None:
        assert isinstance(error, AnswerUnreadable)
        assert "123-45-6789" not in f"{error!r} {error}"
        assert error.__cause__ is None
        assert error.__context__ is None


@pytest.mark.parametrize("name", READERS)
@given(data=st.data())
def test_answer_with_missing_or_null_optional_fields_is_read(name: str, data: st.DataObject) -> None:
    """What the Spec calls nullable may be null or missing, in any combination."""
    endpoint, reader = READERS[name]
    body = sample(name)
    places = st.sampled_from(optional_places(name, body))
    for path, how in data.draw(st.lists(st.tuples(places, st.sampled_from(["drop", "null"])), max_size=8)):
        change(body, path, how, None)
    assert verdict(endpoint, responded(200, json.dumps(body).encode()), reader).success


@given(st.binary(max_size=200) | anything.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    """D4: no body, however foreign, is a crash."""
    for reader in (QUEUE_READER, DETAILS_READER):
        error_of(DETAILS, responded(200, body), reader)
    with suppress(ResellerError):
        institution_list(responded(200, body))


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 200_000,
        b'{"a":' * 200_000,
        b'{"success":true,"phoneCall":' * 50_000,
        b'{"success":true}x',
    ],
)
def test_hostile_json_is_refused(body: bytes) -> None:
    """Nesting without end, trailing garbage: refused."""
    with pytest.raises(Unreadable):
        DETAILS_READER.read(body)


@pytest.mark.parametrize("name", READERS)
def test_quick_and_patient_reading_agree(name: str) -> None:
    """One unreadable optional field changes that field only, not what is read beside it."""
    _, reader = READERS[name]
    body = sample(name)
    quick = reader.read(json.dumps(body).encode())
    body["code"] = 5
    patient = reader.read(json.dumps(body).encode())
    assert patient.code is None
    assert {f: getattr(patient, f) for f in patient.__struct_fields__ if f != "code"} == {
        f: getattr(quick, f) for f in quick.__struct_fields__ if f != "code"
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-03-01T10:00:00", datetime(2026, 3, 1, 10, tzinfo=UTC)),
        ("2026-03-01T10:00:00Z", datetime(2026, 3, 1, 10, tzinfo=UTC)),
        ("2026-03-01T10:00:00+02:00", datetime(2026, 3, 1, 8, tzinfo=UTC)),
        ("2026-03-01T10:00:00.1234567", datetime(2026, 3, 1, 10, 0, 0, 123457, tzinfo=UTC)),
        ("2026-03-01T10:00:00.1234567-05:00", datetime(2026, 3, 1, 15, 0, 0, 123457, tzinfo=UTC)),
        ("0001-01-01T00:00:00", datetime(1, 1, 1, tzinfo=UTC)),
        ("0001-01-01T00:00:00+14:00", None),
        ("9999-12-31T23:59:59.9999999", None),
        ("yesterday", None),
        ("", None),
        (5, None),
    ],
)
def test_instant_is_read_as_utc(text: object, expected: datetime | None) -> None:
    """D12: without zone, with offset, with seven decimals; one outside the calendar is none."""
    body = json.dumps({"success": True, "phoneCall": {"voiceId": "v-1", "updatedDateUtc": text}}).encode()
    call = DETAILS_READER.read(body).phone_call
    assert call is not None
    assert call.updated_at == expected
    assert call.updated_at is None or call.updated_at.tzinfo is UTC


def call_with(**fields: object) -> PhoneCall:
    """Read a call with these wire fields."""
    body = {"success": True, "phoneCall": {"voiceId": "v-1", **fields}}
    call = DETAILS_READER.read(json.dumps(body).encode()).phone_call
    assert call is not None
    return call


@pytest.mark.parametrize(
    "fields",
    [
        {"callEnded": "true"},
        {"callEnded": 1},
        {"status": 5},
        {"status": ["RejectCallerVoice"]},
        {"metaData": "Red"},
        {"metaData": []},
        {"metaData": {"vendorPolicies": "Red"}},
        {"metaData": {"vendorPolicies": {"0": "Red"}}},
        {"researchCase": "DeterminedFraud"},
        {"researchCase": {"researchStatus": 3}},
        {"isEnrolled": "no"},
        {"personId": 12},
    ],
    ids=str,
)
def test_vital_field_of_a_wrong_type_is_never_guessed(fields: dict[str, object]) -> None:
    """What the law decides by must be read as it is: a red policy must not vanish in a tolerant reading."""
    with pytest.raises(Unreadable):
        call_with(**fields)


def test_unreadable_policy_stays_a_policy() -> None:
    """An item that is not a name is kept as its JSON, to be held as unclassified."""
    assert policies_of(call_with(metaData={"vendorPolicies": ["Green A", 5, None, {"n": "Red"}]})) == (
        "Green A",
        "5",
        "null",
        '{"n":"Red"}',
    )


@pytest.mark.parametrize(
    "policies", [{}, {"metaData": None}, {"metaData": {}}, {"metaData": {"vendorPolicies": None}}], ids=str
)
def test_absent_policies_are_none(policies: dict[str, object]) -> None:
    """No metadata, no policies."""
    assert policies_of(call_with(**policies)) == ()


def test_unknown_status_is_kept_as_text() -> None:
    """D11: a word newer than the Spec is kept."""
    assert call_with(status="Teleported", futureField={"a": [1]}).status == "Teleported"


def queue_of(*entries: object) -> QueueAnswer:
    """Read a queue of these entries."""
    return QUEUE_READER.read(json.dumps({"success": True, "phoneCalls": entries}).encode())


ENTRY = {"phoneNumber": "+15550100", "voiceId": "v-1", "startDateTime": "2026-03-01T10:00:00Z"}


@pytest.mark.parametrize(
    ("persons", "ids"),
    [
        (None, []),
        ([], []),
        ([{"personId": "p-1"}], ["p-1"]),
        ([{"personId": "p-1"}, {"personId": "p-1"}], ["p-1", "p-1"]),
        ([{"personId": "p-1"}, {"lastName": "x"}], ["p-1", ""]),
        ([{"personId": "p-1"}, 5], ["p-1", ""]),
        ([{"personId": "p-1"}, None], ["p-1", ""]),
        ([{"personId": 7}], [""]),
        ([{"personId": None}], [""]),
    ],
    ids=str,
)
def test_candidate_never_disappears(persons: object, ids: list[str]) -> None:
    """D10: an unreadable candidate still counts, so that "exactly one" is never reached by misreading."""
    (entry,) = queue_of({**ENTRY, "persons": persons}).phone_calls
    assert [person.person_id for person in entry.persons] == ids


@pytest.mark.parametrize(
    "fault",
    [{"coreUsername": 5}, {"personId": []}, {"voiceId": None}, {"persons": 1}],
    ids=str,
)
def test_broken_entry_hides_no_other(fault: dict[str, object]) -> None:
    """An entry that cannot be acted on is unusable as a whole; those beside it are read."""
    answer = queue_of({**ENTRY, **fault}, ENTRY)
    assert [entry.voice_id for entry in answer.phone_calls] == ["", ENTRY["voiceId"]]


@pytest.mark.parametrize(
    "mangle",
    [
        pytest.param(lambda text: b"\xef\xbb\xbf" + text.encode(), id="byte-order-mark"),
        pytest.param(lambda text: text.replace("Ada", "M\xfcller").encode("latin-1"), id="not-utf-8"),
        pytest.param(lambda text: text.replace("Ada", "\\ud83d").encode(), id="half-of-a-surrogate-pair"),
        pytest.param(lambda text: text.replace("Ada", "A\tda").encode(), id="control-character"),
        pytest.param(lambda text: text.replace('"Ada"', "NaN").encode(), id="not-a-number"),
    ],
)
def test_wrongly_encoded_text_hides_no_call(mangle: Callable[[str], bytes]) -> None:
    """D4: one wrongly encoded name does not hide a queue: only that text is changed."""
    entries = [{"voiceId": "v-1", "phoneNumber": "Ada"}, {"voiceId": "v-2", "persons": [{"personId": "p-\xe9"}]}]
    body = mangle(json.dumps({"success": True, "phoneCalls": entries}))
    first, second = QUEUE_READER.read(body).phone_calls
    assert (first.voice_id, second.voice_id, second.persons[0].person_id) == ("v-1", "v-2", "p-\xe9")
    msgspec.json.encode(first.phone_number)


@pytest.mark.parametrize("phone_number", [None, 5, ""])
def test_withheld_phone_number_is_empty(phone_number: object) -> None:
    """B9: a call without a number is a call."""
    (entry,) = queue_of({**ENTRY, "phoneNumber": phone_number}).phone_calls
    assert entry.voice_id
    assert entry.phone_number == ""


def test_number_in_place_of_a_secret_is_a_secret() -> None:
    """A sensitive field keeps its mask whatever its type."""
    answer = Reader(BaseAnswer).read(b'{"success": false, "error": 123456789}')
    assert answer.error == Secret("123456789")
    assert "123456789" not in repr(answer)


def test_sensitive_fields_of_a_member_are_not_read() -> None:
    """What nobody here has a use for stays in the bytes of the answer."""
    person = {"fullSsn": "123456789", "supportPassword": "hunter2", "driverLicense": {"number": "D1"}, "personId": "7"}
    (entry,) = queue_of({**ENTRY, "persons": [person]}).phone_calls
    assert entry.persons == (PersonMatch(person_id="7"),)


def test_base_answer_shows_no_message() -> None:
    """The service's own words are masked: they may repeat what was asked for."""
    body = b'{"success":false,"error":"Jane Doe","errors":["Jane Doe"],"messages":["Jane Doe"]}'
    assert "Jane" not in repr(Reader(BaseAnswer).read(body))


@pytest.mark.parametrize(
    "body",
    [
        '[{"key":"cu-1","status":"Active","coreConfig":{"edgeAccessKey":"s"}}]',
        '{"success":true,"errors":[],"institutions":[{"key":"cu-1","status":"Active"}]}',
        '{"items":[{"key":"cu-1","status":"Active"},{"status":"Active"},5,{"key":"x","isTestMode":"no"}]}',
    ],
)
def test_institution_list_is_found_in_any_wrapper(body: str) -> None:
    """A bare array or the one array of an object; what cannot be read is left out and counted."""
    readable, left_out = institution_list(responded(200, body.encode()))
    assert [(each.key, each.status) for each in readable] == [("cu-1", "Active")]
    assert left_out == (3 if "items" in body else 0)


@pytest.mark.parametrize("wrapper", [b"%b", b'{"success":true,"institutions":%b}'], ids=["bare", "wrapped"])
@pytest.mark.parametrize(
    ("before", "name"),
    [(b"\xef\xbb\xbf", b"A"), (b"", b"Caf\xe9"), (b"", b"A\tB"), (b"", b"\\ud83d"), (b"", b"\\u0000")],
    ids=["byte order mark", "latin-1", "raw tab", "half a surrogate pair", "escaped zero"],
)
def test_institution_list_is_read_like_every_other_answer(wrapper: bytes, before: bytes, name: bytes) -> None:
    """One badly written name hides no institution."""
    entries = b'[{"key":"cu-1","name":"%b","status":"Active"},{"key":"cu-2","status":"Active"}]' % name
    read, unreadable = institution_list(responded(200, before + wrapper % entries))
    assert ([one.key for one in read], unreadable) == (["cu-1", "cu-2"], 0)


@pytest.mark.parametrize("body", [b"{}", b'{"success":true}', b'{"a":[],"b":[]}', b'"x"', b"null", b""])
def test_institution_list_that_is_not_there_is_unreadable(body: bytes) -> None:
    """No list is not an empty list."""
    with pytest.raises(AnswerUnreadable):
        institution_list(responded(200, body))

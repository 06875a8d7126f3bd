"""Push events: what is read, what is refused, what is never said about it."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callkeeper.service.push_event import MAX_DEPTH, PushEvent, PushUnreadable, parse_push

CALL_START: dict[str, Any] = {
    "Type": "CallStart",
    "StartDateTime": "2026-11-21T09:00:00Z",
    "VoiceId": "voice-1",
    "AlternateVoiceId": "alternate-1",
    "PhoneNumber": "+15550100",
    "DestinationPhoneNumber": "+15550199",
    "IsTest": None,
    "InstitutionKey": "cu-1",
}
CANARY = "canary-7f3a"


def body(**changes: Any) -> bytes:
    """Return a CallStart's body with some fields changed."""
    return json.dumps(CALL_START | changes).encode()


def without(*names: str) -> bytes:
    """Return a CallStart's body without some fields."""
    return json.dumps({name: value for name, value in CALL_START.items() if name not in names}).encode()


def test_push_reads_every_field_of_the_spec() -> None:
    """Every field of the payload arrives under its own name. Spec: Events, Payload."""
    assert parse_push(body()) == PushEvent(
        type="CallStart",
        institution_key="cu-1",
        start_date_time="2026-11-21T09:00:00Z",
        end_date_time=None,
        voice_id="voice-1",
        alternate_voice_id="alternate-1",
        phone_number="+15550100",
        destination_phone_number="+15550199",
        is_test=None,
    )


@pytest.mark.parametrize(
    "accepted",
    [
        pytest.param(without("StartDateTime"), id="no-date"),
        pytest.param(body(EndDateTime="2026-11-21T09:05:00Z"), id="both-dates"),
        pytest.param(body(StartDateTime="yesterday, half past nine"), id="odd-date"),
        pytest.param(body(StartDateTime=""), id="empty-date"),
        pytest.param(body(Extra={"a": [1, {"b": None}]}, more=1.5), id="unknown-fields"),
        pytest.param(body(Type="CallTransferred"), id="unknown-type"),
        pytest.param(without("VoiceId"), id="alternate-id-only"),
        pytest.param(without("AlternateVoiceId"), id="voice-id-only"),
        pytest.param(body(VoiceId=""), id="empty-voice-id-beside-an-alternate"),
        pytest.param(body(VoiceId="00000000-0000-0000-0000-000000000000"), id="empty-guid-beside-an-alternate"),
        pytest.param(without("PhoneNumber", "DestinationPhoneNumber", "IsTest"), id="only-what-is-required"),
        pytest.param(body(PhoneNumber="anonymous"), id="withheld-number"),
        pytest.param(body(PhoneNumber="\ud800"), id="lone-surrogate-where-nothing-depends-on-it"),
        pytest.param(body(IsTest=True), id="sample"),
        pytest.param(body(VoiceId="ä" * 256), id="longest-id"),
        pytest.param(body(Note="[" * 1000 + '\\"{'), id="brackets-inside-a-string"),
        pytest.param(b" \r\n" + body() + b"\n", id="blanks-around"),
        pytest.param(b"\xef\xbb\xbf" + body(), id="byte-order-mark"),
        pytest.param(body(StartDateTime=1700000000, EndDateTime={"at": 1}), id="dates-that-are-no-text"),
        pytest.param(body(PhoneNumber=["+15550100"], DestinationPhoneNumber=True), id="numbers-that-are-none"),
        pytest.param(body(IsTest="maybe"), id="unreadable-flag"),
    ],
)
def test_push_tolerates_what_nothing_depends_on(accepted: bytes) -> None:
    """A10: a refusal loses the event for ever, so only what steers a request or names the call may cause one."""
    event = parse_push(accepted)
    assert event.institution_key == "cu-1"
    assert (event.phone_number or "").encode("utf-8") is not None


def test_push_of_the_empty_guid_counts_by_its_alternate_id() -> None:
    """The GUID of zeros names no call: else every call that is pushed so would be one (F8)."""
    nothing = "00000000-0000-0000-0000-000000000000"
    event = parse_push(body(VoiceId=nothing))
    assert (event.voice_id, event.alternate_voice_id) == (None, "alternate-1")
    with pytest.raises(PushUnreadable):
        parse_push(body(VoiceId=nothing, AlternateVoiceId=nothing))


@pytest.mark.parametrize(
    ("refused", "field"),
    [
        pytest.param(body(VoiceId=17), "VoiceId", id="number-as-id"),
        pytest.param(body(VoiceId=["voice-1"]), "VoiceId", id="list-as-id"),
        pytest.param(body(AlternateVoiceId={}), "AlternateVoiceId", id="object-as-id"),
        pytest.param(body(Type=None), "Type", id="null-type"),
        pytest.param(body(Type=""), "Type", id="empty-type"),
        pytest.param(body(Type="Call\nStart"), "Type", id="type-with-line-break"),
        pytest.param(without("Type"), "Type", id="no-type"),
        pytest.param(without("InstitutionKey"), "InstitutionKey", id="no-institution"),
        pytest.param(without("VoiceId", "AlternateVoiceId"), "VoiceId", id="no-id"),
        pytest.param(body(VoiceId=None, AlternateVoiceId=None), "VoiceId", id="null-ids"),
        pytest.param(body(VoiceId="", AlternateVoiceId=""), "VoiceId", id="empty-ids"),
        pytest.param(body(Type=["CallStart"]), "Type", id="list-as-type"),
        pytest.param(body(InstitutionKey=1), "InstitutionKey", id="number-as-institution"),
    ],
)
def test_push_refuses_wrong_types_and_names_the_field(refused: bytes, field: str) -> None:
    """A10: an id, the type or the institution of a wrong type, or one of the three that is missing, is refused by name."""
    with pytest.raises(PushUnreadable) as caught:
        parse_push(refused)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("sent", "read"),
    [(5550100001, "5550100001"), (0, "0"), ("+1 555", "+1 555"), (5.5e9, None), (True, None), (None, None), ({}, None)],
)
@pytest.mark.parametrize("field", ["PhoneNumber", "DestinationPhoneNumber"])
def test_push_reads_a_phone_number_that_is_a_number(field: str, sent: object, read: str | None) -> None:
    """A10: whole numbers are read as their digits; anything else counts as absent, and the queue shows the number."""
    event = parse_push(body(**{field: sent}))
    assert (event.phone_number if field == "PhoneNumber" else event.destination_phone_number) == read


@pytest.mark.parametrize("sent", [True, "true", "True", " TRUE ", 1, "1"])
def test_push_knows_a_sample_however_it_is_written(sent: object) -> None:
    """A10: whatever clearly says true is a sample, and touches nothing."""
    assert parse_push(body(IsTest=sent)).is_test is True


@pytest.mark.parametrize("sent", [False, None, "false", "False", 0, "0", "", "null", "maybe", 2, 1.5, [True], {"a": 1}])
def test_push_with_any_other_flag_is_a_real_one(sent: object) -> None:
    """A10: only what clearly says true makes a sample: otherwise an odd value would lose every real call's push."""
    assert parse_push(body(IsTest=sent)).is_test is not True


@pytest.mark.parametrize(
    "voice_id",
    [
        ".",
        "..",
        "../x",
        "a/./b",
        "a\\..",
        " ab",
        "ab ",
        "a\tb",
        "a\r\nX: y",
        "a\x00",
        "a\u00a0b",
        "a\u2028b",
        "\ud800",
        "a" * 257,
        "a" * 10_240,
    ],
    ids=[
        "dot",
        "dots",
        "up",
        "here",
        "back",
        "blank-before",
        "blank-after",
        "tab",
        "line-break",
        "nul",
        "nbsp",
        "line-separator",
        "surrogate",
        "long",
        "10-kB",
    ],
)
@pytest.mark.parametrize("field", ["VoiceId", "AlternateVoiceId"])
def test_push_refuses_ids_that_could_steer_a_request(field: str, voice_id: str) -> None:
    """A11: an id that could leave its path, header or line does not get in."""
    with pytest.raises(PushUnreadable) as caught:
        parse_push(body(**{field: voice_id}))
    assert caught.value.field == field


@pytest.mark.parametrize(
    "key",
    ["", ".", "..", "a/b", "a b", "cu-1\r\nSsoToken: x", "ü", "a\x7f", "a" * 65],
    ids=["empty", "dot", "dots", "slash", "blank", "line-break", "non-ascii", "delete", "long"],
)
def test_push_refuses_institution_keys_that_cannot_be_headers(key: str) -> None:
    """A12: a key that could not be sent as one header and one part of a path does not get in."""
    with pytest.raises(PushUnreadable) as caught:
        parse_push(body(InstitutionKey=key))
    assert caught.value.field == "InstitutionKey"


@pytest.mark.parametrize(
    "refused",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"null", id="null"),
        pytest.param(b"[]", id="list"),
        pytest.param(b'"x"', id="string"),
        pytest.param(body()[:-1], id="truncated"),
        pytest.param(body() + b"x", id="trailing"),
        pytest.param(b"\xef\xbb\xbf" * 2 + body(), id="two-byte-order-marks"),
        pytest.param(body().decode().encode("utf-16"), id="utf-16"),
        pytest.param(b'{"Type": "\xff"}', id="invalid-utf-8"),
        pytest.param(b"[" * 100_000, id="nested-lists"),
        pytest.param(b'{"a":' * 100_000, id="nested-objects"),
        pytest.param(b'{"Type":"CallEnd",' + body()[1:], id="duplicate-name"),
        pytest.param(b'{"x":{"a":1,"a":2},' + body()[1:], id="duplicate-name-inside"),
        pytest.param(b'{"x":NaN,' + body()[1:], id="nan"),
        pytest.param(b'{"x":-Infinity,' + body()[1:], id="infinity"),
        pytest.param(b'{"x":' + b"1" * 5_000 + b"," + body()[1:], id="number-too-long"),
        pytest.param(b"{'Type': 'CallStart'}", id="single-quotes"),
    ],
)
def test_push_refuses_everything_but_strict_json(refused: bytes) -> None:
    """A9: what two readers could read differently, or none at all, is refused as a body."""
    with pytest.raises(PushUnreadable) as caught:
        parse_push(refused)
    assert caught.value.field == "body"


@pytest.mark.parametrize(("depth", "is_read"), [(MAX_DEPTH - 1, True), (MAX_DEPTH, False)])
def test_push_nesting_is_bounded_exactly(depth: int, is_read: bool) -> None:
    """Unknown fields may nest up to the limit (the payload itself is one level), beside any number of brackets."""
    text = json.dumps(CALL_START)[:-1] + ',"Flat":' + "[[]" + ",[]" * 99 + "]" + ',"Deep":' + "[" * depth + "]" * depth
    if is_read:
        parse_push(f"{text}}}".encode())
    else:
        with pytest.raises(PushUnreadable, match="nesting"):
            parse_push(f"{text}}}".encode())


@pytest.mark.parametrize("field", ["Type", "VoiceId", "AlternateVoiceId", "InstitutionKey"])
def test_push_error_never_repeats_a_value(field: str) -> None:
    """The message goes to the sender's settings page and to logs: it holds no value, whichever field is wrong."""
    with pytest.raises(PushUnreadable) as caught:
        parse_push(body(**{field: [CANARY]}))
    assert CANARY not in str(caught.value)
    assert caught.value.__cause__ is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(changes=st.dictionaries(st.sampled_from([*CALL_START, "Other"]), JSON))
def test_push_is_read_or_refused_whatever_it_holds(changes: dict[str, Any]) -> None:
    """For all fields and values: a typed refusal, or an event whose ids obey their laws and can be written as UTF-8."""
    try:
        event = parse_push(body(**changes))
    except PushUnreadable:
        return
    assert event.voice_id or event.alternate_voice_id
    for text in (event.voice_id, event.alternate_voice_id, event.phone_number, event.type, event.institution_key):
        assert text is None or text.encode("utf-8") is not None
    for voice_id in (event.voice_id, event.alternate_voice_id):
        assert voice_id is None or (voice_id.isprintable() and " " not in voice_id and len(voice_id) <= 256)


@given(noise=st.binary(max_size=200))
def test_push_noise_is_refused_by_type(noise: bytes) -> None:
    """For all bytes: reading either succeeds or raises PushUnreadable, nothing else."""
    with suppress(PushUnreadable):
        parse_push(noise)

"""The form of answers: what is recognised, how often one is looked at, and that nothing of a person is repeated."""

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import msgspec
import pytest

from callkeeper.service.aiohttp_transport import ServiceResponse
from callkeeper.service.answer_shapes import LOOK_EVERY_S, AnswerLooks, shapes_of
from callkeeper.service.endpoints import DETAILS, INSTITUTION, INSTITUTIONS, QUEUE, TOKEN, Endpoint

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
OK: dict[str, Any] = {"success": True, "error": None, "errors": None, "messages": None, "code": None}
ENTRY: dict[str, Any] = {
    "phoneNumber": "5550100001",
    "voiceId": "6f9619ff-8b86-d011-b42d-00c04fc964ff",
    "personId": None,
    "coreUsername": None,
    "startDateTime": "2026-11-21T11:59:58Z",
    "persons": None,
}
CALL: dict[str, Any] = {
    "voiceId": ENTRY["voiceId"],
    "metaData": {"vendorPolicies": []},
    "updatedDateUtc": "2026-11-21T12:00:00Z",
}
SHOWN = [
    (QUEUE, 200, OK | {"phoneCalls": [ENTRY | {"phoneNumber": "+15550100001"}]}, "phone-digits", "numbers-e164"),
    (QUEUE, 200, OK | {"phoneCalls": [ENTRY | {"voiceId": "7734"}]}, "voice-id-alphabet", "ids-numbers"),
    (QUEUE, 200, OK | {"phoneCalls": [ENTRY | {"voiceId": "a€ b"}]}, "voice-id-alphabet", "ids-wide"),
    (QUEUE, 200, OK | {"phoneCalls": [ENTRY | {"x": 1}]}, "fields-may-change", "fields-added"),
    (QUEUE, 200, OK | {"phoneCalls": [{"voiceId": "v"}]}, "fields-may-change", "nulls-left-out"),
    (QUEUE, 200, OK | {"phoneCalls": [ENTRY | {"persons": []}]}, "queue-candidates", "persons-empty"),
    (QUEUE, 200, OK, "queue-has-calls", "no-phone-calls"),
    (QUEUE, 200, OK | {"phoneCalls": [ENTRY], "messages": ["x"]}, "base-response", "messages-everywhere"),
    (DETAILS, 200, OK | CALL, "details-place", "record-at-top"),
    (DETAILS, 200, OK | {"phoneCall": CALL}, "details-place", "record-nested"),
    (DETAILS, 200, OK | CALL | {"phoneCall": CALL | {"voiceId": "other"}}, "details-two-records", "records-differ"),
    (DETAILS, 200, OK | {"phoneCall": CALL | {"metaData": None}}, "metadata-without-policies", "metadata-null"),
    (DETAILS, 404, {"success": False, "code": "CallNotFound"}, "refusal-status", "not-found-with-404"),
    (DETAILS, 400, {"success": False, "error": "Call not found."}, "refusal-words", "refusal-in-error"),
    (TOKEN, 200, OK | {"token": "t", "expiresOn": "2026-11-21T12:00:01Z"}, "token-life", "expires-at-login"),
    (TOKEN, 200, OK | {"token": "t", "institutionKeys": ["a/b"]}, "institution-key-alphabet", "odd-key"),
    (INSTITUTIONS, 200, [{"key": "cu-1", "classification": 3}], "institution-shape", "institution-odd"),
    (INSTITUTIONS, 200, {"data": {"institutions": []}}, "institution-list-form", "list-nested"),
]


@pytest.mark.parametrize(("endpoint", "status", "body", "assumption", "answer"), SHOWN)
def test_form_is_recognised(endpoint: Endpoint, status: int, body: Any, assumption: str, answer: str) -> None:
    """Each form that the document allows has its name."""
    assert (assumption, answer) in [(seen.assumption, seen.answer) for seen in shapes_of(endpoint, status, body, NOW)]


def test_refusals_of_institutions_say_nothing_of_calls() -> None:
    """A reseller's endpoints may refuse in another form."""
    assert list(shapes_of(INSTITUTION, 404, {"success": False, "error": "x"}, NOW)) == []


def test_shapes_hold_no_value_of_an_answer() -> None:
    """Texts, unknown names and unknown words become types, lengths and counts."""
    canary = "Canaria Featherstone"
    entry = dict.fromkeys(ENTRY, canary) | {canary: canary, "persons": [{canary: canary}]}
    bodies: list[tuple[Endpoint, Any]] = [
        (QUEUE, OK | {"phoneCalls": [entry], canary: canary}),
        (DETAILS, OK | {"phoneCall": dict.fromkeys(CALL, canary), canary: canary}),
        (DETAILS, {"success": False, "error": canary, "code": canary, "errors": [canary]}),
        (TOKEN, OK | {"token": canary, "institutionKeys": [canary], "expiresOn": canary}),
        (
            INSTITUTIONS,
            {"institutions": [{"status": "Active", "classification": canary, "vpnConfig": {"confirmStatus": canary}}]},
        ),
    ]
    seen = [one for endpoint, body in bodies for one in shapes_of(endpoint, 200, body, NOW)]
    assert len(seen) > 10
    assert [one for one in seen if canary in "".join(one)] == []


def test_one_answer_in_two_seconds_is_looked_at_and_every_refusal() -> None:
    """The cost does not grow with the traffic: answers between two looks are passed by."""
    now_s, looked = 0.0, []
    looks = AnswerLooks(lambda *seen: looked.append(seen), clock=lambda: now_s, now=lambda: NOW)

    def take(key: str, body: Any, status: int = 200) -> int:
        looked.clear()
        looks.look(QUEUE, key, ServiceResponse(status, httpx.Headers(), msgspec.json.encode(body)))
        return len(looked)

    answer, refusal = OK | {"phoneCalls": [ENTRY]}, {"success": False, "error": "no"}
    assert take("cu-1", answer) > 0
    assert take("cu-1", answer) == 0
    assert take("cu-2", answer) > 0
    assert [take("cu-1", refusal), take("cu-1", refusal, 400)] == [2, 1]
    now_s += LOOK_EVERY_S
    assert take("cu-1", answer) > 0


def test_unreadable_answers_are_no_trouble() -> None:
    """Observing never fails: a broken body is left to those who need it; a web page is seen as one."""
    seen: list[tuple[str, str]] = []
    looks = AnswerLooks(lambda name, answer, *_: seen.append((name, answer)), clock=lambda: 0.0, now=lambda: NOW)
    for content in (b"", b"\xff", b"[" * 100_000, b'{"success": false', b"<html>"):
        looks.look(INSTITUTIONS, "", ServiceResponse(502, httpx.Headers(), content))
    assert seen == [("page-is-absence", "web-page")]
    assert looks.zone == ""


@pytest.mark.parametrize(("text", "zone"), [("12:00:00Z", "Z"), ("17:30:00+05:30", "offset"), ("12:00:00", "none")])
def test_zone_of_instants_is_remembered(text: str, zone: str) -> None:
    """It is needed to tell a local time without a zone from a clock that is wrong."""
    looks = AnswerLooks(lambda *_: None, clock=lambda: 0.0, now=lambda: NOW + timedelta(0))
    body = msgspec.json.encode(OK | {"phoneCall": CALL | {"updatedDateUtc": f"2026-11-21T{text}"}})
    looks.look(DETAILS, "cu-1", ServiceResponse(200, httpx.Headers(), body))
    assert looks.zone == zone

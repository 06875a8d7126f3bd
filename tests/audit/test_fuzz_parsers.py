"""Every parser of foreign data either returns a record or raises its own error, for any input."""

import json
from contextlib import suppress
from importlib.resources import files
from typing import Any

import httpx
from hypothesis import given
from hypothesis import strategies as st

from callkeeper.app.middleware import is_plain
from callkeeper.calls.rules import SHIPPED, RulesError, parse_rules
from callkeeper.service import ResellerError
from callkeeper.service.answer_meaning import institution_list, verdict
from callkeeper.service.answer_parsing import Reader
from callkeeper.service.answer_records import AssignAnswer, BaseAnswer, DetailsAnswer, QueueAnswer, TokenAnswer
from callkeeper.service.endpoints import DETAILS, ServiceResponse
from callkeeper.service.push_event import HeaderSettingsUnreadable, PushUnreadable, parse_header_settings, parse_push
from receiver.authentication import PushAuthentication
from tests.audit.mutants import mutants
from tests.unit.service.test_answer_parsing import sample

PUSH = json.dumps(
    {
        "Type": "CallStart",
        "StartDateTime": "2026-11-21T12:00:00Z",
        "VoiceId": "voice-1",
        "AlternateVoiceId": "alternate-1",
        "PhoneNumber": "5550100001",
        "IsTest": None,
        "InstitutionKey": "cu-1",
    }
).encode()
HEADERS = (
    b"X-Push-Key: kD83-mcl2-0d9s-lx01",
    b"X-A: 1; X-B: kD83-mcl2-0d9s-lx01;",
    b"Authorization: Bearer abc;X-Env: p",
)
RULES = [(files("callkeeper.calls") / "rulebooks" / f"{name}.toml").read_bytes() for name in SHIPPED]
KINDS: tuple[type[BaseAnswer], ...] = (TokenAnswer, QueueAnswer, AssignAnswer, DetailsAnswer, BaseAnswer)
STATUSES = (200, 200, 200, 204, 301, 400, 401, 404, 429, 500, 503)
ANSWERS = [
    *(json.dumps({"success": True, **sample(name)}).encode() for name in ("QueueAnswer", "DetailsAnswer")),
    b'{"success":true,"token":"0f8fad5b-d9cb-469f-a165-70867728950e","institutionKeys":["cu-1"]}',
    b'{"success":false,"error":"canary of a member","errors":["canary"],"code":"x"}',
    b'{"success":true,"institutions":[{"id":1,"key":"cu-1","status":"Active","hasVoiceAuth":true,"isTestMode":false}]}',
]


@given(body=mutants([PUSH]) | st.binary(max_size=300))
def test_push_decoder_reads_or_refuses(body: bytes) -> None:
    """A9: any body becomes an event that can be stored, or a short `PushUnreadable`."""
    try:
        event = parse_push(body)
    except PushUnreadable as problem:
        assert len(str(problem)) < 120
        return
    assert event.voice_id or event.alternate_voice_id
    assert "\n" not in event.institution_key + event.type + (event.voice_id or "") + (event.alternate_voice_id or "")


@given(text=mutants(HEADERS))
def test_header_settings_read_or_refuse(text: bytes) -> None:
    """Any setting becomes headers, or an error; neither shows a secret."""
    try:
        headers = parse_header_settings(text.decode("utf-8", "replace"))
    except HeaderSettingsUnreadable as problem:
        assert "kD83" not in str(problem)
        return
    PushAuthentication(headers)
    assert "kD83" not in repr(headers)


@given(path=mutants([b"/desk/calls/cu-1/voice-1/verified", b"/rq/0/view/jobs", b"/board"]))
def test_paths_are_judged(path: bytes) -> None:
    """A path that counts as plain has no percent sign in its first part, and no dot segments."""
    if is_plain(path):
        parts = path.partition(b"?")[0].split(b"/")
        assert b"%" not in parts[1]
        assert not {b".", b"..", b"%2e", b"%2E"} & set(parts)


@given(text=mutants(RULES))
def test_rules_loader_reads_or_names_the_faults(text: bytes) -> None:
    """Any rules file becomes a rule book or raises `RulesError`."""
    with suppress(RulesError):
        parse_rules(text, name="rules.toml", owned=frozenset({"cu-1"}))


@given(kind=st.sampled_from(KINDS), body=mutants(ANSWERS) | st.binary(max_size=200), status=st.sampled_from(STATUSES))
def test_answers_of_the_service_are_read_or_refused(kind: type[BaseAnswer], body: bytes, status: int) -> None:
    """D4: any answer becomes a record, or a typed error without the service's texts."""
    reader: Reader[Any] = Reader(kind)
    try:
        verdict(DETAILS, ServiceResponse(status, httpx.Headers(), body), reader)
        institution_list(ServiceResponse(status, httpx.Headers(), body))
    except ResellerError as error:
        assert "canary" not in str(error)

"""The tap beside the client: which answers contradict an assumption, and how few are looked at."""

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import msgspec
import pytest

from callkeeper.service.answer_tap import CALLS, LOOK_EVERY_S, AnswerTap
from callkeeper.service.endpoints import DETAILS, ENROLL, INSTITUTIONS, QUEUE, TOKEN, Endpoint, Request, ServiceResponse

NOW = datetime(2026, 11, 26, 10, 0, tzinfo=UTC)
ASKED, OTHER = "0f3a6d1c-0000-4000-8000-000000000001", "0f3a6d1c-0000-4000-8000-000000000002"


class Rig:
    """A tap, the time, and what it saw."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []
        self.now_s = 0.0
        self.tap = AnswerTap(
            lambda assumption, answer, _key, _shape: self.seen.append((assumption, answer)),
            clock=lambda: self.now_s,
            now=lambda: NOW + timedelta(seconds=self.now_s),
        )

    def answer(self, endpoint: Endpoint, body: object, *, voice_id: str = "", status: int = 200) -> None:
        """Let the tap look at an answer."""
        content = body if isinstance(body, bytes) else msgspec.json.encode(body)
        path = endpoint.at(voice_id) if voice_id else endpoint.path
        self.tap.look(
            Request(endpoint, path, {"InstitutionKey": "cu-1"}), ServiceResponse(status, httpx.Headers(), content)
        )

    def details(self, after_s: float, **record: Any) -> None:
        """Answer with the record of the call that is asked for."""
        self.now_s += after_s
        self.answer(DETAILS, {"success": True, "phoneCall": {"voiceId": ASKED, **record}}, voice_id=ASKED)


def entries(*found: object) -> dict[str, object]:
    """Return an answer of the queue."""
    return {"success": True, "phoneCalls": list(found)}


@pytest.mark.parametrize(
    ("endpoint", "body", "seen"),
    [
        (QUEUE, entries({"voiceId": ASKED, "startDateTime": "2026-11-26T10:00:00Z"}), []),
        (QUEUE, {"success": True}, ["no-phone-calls"]),
        (QUEUE, entries({"voiceId": " odd"}), ["odd-id"]),
        (QUEUE, entries({"voiceId": None}, 7), ["entry-without-id", "entry-unreadable"]),
        (QUEUE, entries({"voiceId": ASKED, "startDateTime": "0001-01-01T00:00:00"}), ["starts-in-year-1"]),
        (QUEUE, {"success": False, "code": "x"}, []),
        (QUEUE, b"<html>", []),
        (DETAILS, {"success": True, "voiceId": ASKED, "phoneCall": {"voiceId": ASKED}}, []),
        (DETAILS, {"success": True, "voiceId": OTHER, "phoneCall": {"voiceId": ASKED}}, ["records-differ"]),
        (TOKEN, {"success": True, "token": "t", "institutionKeys": ["cu-1"]}, []),
        (TOKEN, {"success": True, "token": "t", "institutionKeys": ["cu/1", "cu-1"]}, ["odd-key"]),
        (INSTITUTIONS, {"success": True, "institutions": []}, []),
        (INSTITUTIONS, {"success": True, "institutions": 7}, ["list-unreadable"]),
    ],
)
def test_answer_that_contradicts_is_seen(endpoint: Endpoint, body: object, seen: list[str]) -> None:
    """Each form that an assumption excludes is told by name; a usual answer, a refusal and a page of the web are not."""
    rig = Rig()
    rig.answer(endpoint, body, voice_id=ASKED if endpoint is DETAILS else "")
    assert [answer for _, answer in rig.seen] == seen


@pytest.mark.parametrize(
    ("first", "second", "shown"),
    [
        ({"status": "a", "updatedDateUtc": "2026-11-26T10:00:00Z"}, {"updatedDateUtc": "2026-11-26T10:00:05Z"}, []),
        (
            {"status": "a", "updatedDateUtc": "2026-11-26T10:00:00Z"},
            {"status": "b", "updatedDateUtc": "2026-11-26T10:00:00Z"},
            ["updated-stays"],
        ),
        ({"updatedDateUtc": "2026-11-26T05:00:00"}, {"updatedDateUtc": "2026-11-26T05:00:05"}, ["dates-local-west"]),
        ({"updatedDateUtc": "2026-11-26T15:30:00"}, {"updatedDateUtc": "2026-11-26T15:30:05"}, ["dates-local-east"]),
        ({"updatedDateUtc": "2026-11-26T10:00:00"}, {"updatedDateUtc": "2026-11-26T10:00:05"}, []),
        ({}, {"voiceId": OTHER}, ["another-call"]),
        ({}, {"voiceId": OTHER, "vendorEvents": [{"call": {"correlationAltId": ASKED}}]}, []),
    ],
)
def test_details_of_a_sampled_call_are_compared(
    first: dict[str, Any], second: dict[str, Any], shown: list[str]
) -> None:
    """What two readings of one call contradict is told when it ends, and the call is forgotten."""
    rig = Rig()
    rig.details(0, **first)
    rig.details(5, **second)
    sample = rig.tap.end("cu-1", ASKED.upper())
    assert sample is not None
    assert [one.answer for one in sample.shown] == shown
    assert rig.tap.end("cu-1", ASKED) is None


def test_effect_that_was_turned_away_is_remembered_until_it_is_answered() -> None:
    """A 401 or 429 to an effect counts for the call's end; a later answer to the effect takes its place."""
    rig = Rig()
    rig.details(0)
    rig.answer(ENROLL, {"success": True}, voice_id=ASKED, status=429)
    rig.answer(ENROLL, {"success": True}, voice_id=ASKED, status=401)
    sample = rig.tap.end("cu-1", ASKED)
    assert sample is not None
    assert sample.turned_away == {ENROLL.name: 401}


def test_few_answers_and_few_calls_are_looked_at() -> None:
    """One answer of an endpoint and institution in half a minute, and fifty calls at a time."""
    rig = Rig()
    for _ in range(100):
        rig.answer(QUEUE, {"success": True})
        rig.now_s += 1
    assert len(rig.seen) == 100 // int(LOOK_EVERY_S) + 1
    for number in range(CALLS + 10):
        rig.answer(DETAILS, {"success": True}, voice_id=f"v-{number}")
    assert [rig.tap.end("cu-1", f"v-{number}") is not None for number in (0, CALLS - 1, CALLS)] == [True, True, False]

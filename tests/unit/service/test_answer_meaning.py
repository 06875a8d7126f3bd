"""What an answer means, row by row, and what an error may say."""

import json
import pickle

import pytest

from callkeeper.service import (
    AnswerUnreadable,
    CallNotFound,
    ForeignAnswer,
    InstitutionNotFound,
    OutcomeUnknown,
    ResellerError,
    ServiceBusy,
    ServiceRefused,
    ServiceUnavailable,
    TokenLapsed,
)
from callkeeper.service import errors as all_errors
from callkeeper.service.answer_meaning import effect_verdict, foreign_answer, verdict
from callkeeper.service.answer_parsing import Reader
from callkeeper.service.answer_records import BaseAnswer
from callkeeper.service.endpoints import (
    ADD_INSTITUTION,
    ASSIGN,
    DETAILS,
    ENROLL,
    INSTITUTION,
    REJECT_VOICE,
    Endpoint,
    ServiceResponse,
)
from tests.unit.service.service import responded

BASE = Reader(BaseAnswer)


def answer(status: int, **body: object) -> ServiceResponse:
    """Make an answer of a JSON object."""
    return responded(status, json.dumps(body).encode())


def refusal(endpoint: Endpoint, given: ServiceResponse) -> ResellerError:
    """Return the error that an answer amounts to."""
    with pytest.raises(ResellerError) as caught:
        verdict(endpoint, given, BASE)
    return caught.value


@pytest.mark.parametrize(
    ("status", "content", "media_type", "expected"),
    [
        (200, b"<html>", "Text/HTML; charset=utf-8", ForeignAnswer(200, "text/html")),
        (403, b"Access denied", "a b c", ForeignAnswer(403, "")),
        (407, b'{"error":"log in"}', "application/json", ForeignAnswer(407, "application/json")),
        (302, b"", "", ForeignAnswer(302, "")),
        (502, b"<html>", "text/html", ForeignAnswer(502, "text/html")),
        (500, b"<html>", "text/html", None),
        (401, b"<html>", "text/html", None),
        (429, b"slow down", "text/plain", None),
        (200, b'\xef\xbb\xbf {"success":true}', "application/json", None),
        (200, b"null", "application/json", None),
        (503, b"", "", None),
    ],
)
def test_answer_of_something_else_is_recognised(
    status: int, content: bytes, media_type: str, expected: ForeignAnswer | None
) -> None:
    """What cannot be the service's is seen with status and content type only. The service itself may fail without JSON."""
    given = responded(status, content, [(b"content-type", media_type.encode())])
    assert foreign_answer(given) == expected
    if expected is not None:
        assert refusal(DETAILS, given).foreign == expected
        with pytest.raises(OutcomeUnknown) as caught:
            effect_verdict(ENROLL, given, BASE)
        assert caught.value.foreign == expected


@pytest.mark.parametrize(
    ("endpoint", "given", "kind"),
    [
        (DETAILS, answer(401, success=True), TokenLapsed),
        (DETAILS, answer(429), ServiceBusy),
        (DETAILS, answer(503, success=False), ServiceUnavailable),
        (DETAILS, answer(500, success=False), ServiceUnavailable),
        (DETAILS, responded(502, b"<html>"), ServiceUnavailable),
        (DETAILS, answer(200, success=False), ServiceRefused),
        (DETAILS, answer(200, success=False, error="no"), ServiceRefused),
        (DETAILS, answer(200, success=False, errors=["no"]), ServiceRefused),
        (DETAILS, answer(200, success=False, code="E1"), ServiceRefused),
        (DETAILS, answer(200, success=False, error="Phone call not found."), CallNotFound),
        (DETAILS, answer(200, success=False, code="NotFound"), CallNotFound),
        (DETAILS, answer(200, success=False, errors=["PHONE_CALL_NOT_FOUND"]), CallNotFound),
        (DETAILS, answer(404, success=False), CallNotFound),
        (ENROLL, answer(200, success=False, error="Phone call not found"), CallNotFound),
        (ENROLL, answer(200, success=False, error="Person not found"), ServiceRefused),
        (REJECT_VOICE, answer(200, success=False, code="CallNotFound"), CallNotFound),
        (ASSIGN, answer(200, success=False, error="a phone number or voice id must be provided"), ServiceRefused),
        (INSTITUTION, answer(404, success=False), InstitutionNotFound),
        (INSTITUTION, answer(200, success=False, error="Institution not found"), InstitutionNotFound),
        (DETAILS, answer(200, success=False, error="Institution not found."), InstitutionNotFound),
        (ENROLL, answer(200, success=False, code="InstitutionNotFound"), InstitutionNotFound),
        (ADD_INSTITUTION, answer(400, title="Bad", detail="x"), ServiceRefused),
        (ADD_INSTITUTION, answer(400, success=False), ServiceRefused),
        (DETAILS, answer(400, title="Bad"), AnswerUnreadable),
        (DETAILS, answer(403, success=True), AnswerUnreadable),
        (DETAILS, answer(302, success=True), AnswerUnreadable),
        (DETAILS, answer(200), AnswerUnreadable),
        (DETAILS, responded(200, b"<html>"), ServiceUnavailable),
        (DETAILS, responded(404, b"<html>"), ServiceUnavailable),
        (DETAILS, responded(200, b""), AnswerUnreadable),
    ],
)
def test_answer_amounts_to_its_error(endpoint: Endpoint, given: ServiceResponse, kind: type[ResellerError]) -> None:
    """D3, D4, D5: `success` decides, and a status only where the Spec or plain HTTP gives it a meaning."""
    assert type(refusal(endpoint, given)) is kind


@pytest.mark.parametrize("status", [200, 201, 202])
def test_success_is_success(status: int) -> None:
    """A 2xx with `success: true` is the record."""
    assert verdict(DETAILS, answer(status, success=True, code="C1"), BASE).code == "C1"


@pytest.mark.parametrize(
    "given", [answer(500), answer(429), answer(503), answer(200), responded(200, b"x"), answer(302)]
)
def test_effect_without_a_clear_answer_is_unknown(given: ServiceResponse) -> None:
    """E1: whatever is neither applied nor declined is unknown, 429 and 503 too."""
    with pytest.raises(OutcomeUnknown):
        effect_verdict(ENROLL, given, BASE)


@pytest.mark.parametrize(
    ("code", "kept"),
    [
        ("Declined", "Declined"),
        ("E-1.2_b", "E-1.2_b"),
        ("x" * 40, "x" * 40),
        ("x" * 41, None),
        ("member Jane", None),
        ("123-45-6789", None),
        ("SSN123456789", None),
        ("a\nb", None),
        ("", None),
        (None, None),
        (7, None),
    ],
)
def test_code_is_kept_only_if_it_looks_like_one(code: object, kept: str | None) -> None:
    """A code is a short word; anything that could be a name or a number stays out of messages."""
    error = refusal(ENROLL, answer(200, success=False, code=code))
    assert isinstance(error, ServiceRefused)
    assert error.code == kept
    assert str(error) == "enroll: refused with status 200" + (f", code {kept}" if kept else "")


@pytest.mark.parametrize("status", [200, 400, 401, 404, 429, 500, 503])
def test_error_says_nothing_of_the_body(status: int) -> None:
    """An error's text, arguments and chain hold neither the service's words nor the body."""
    canary = "Jane 123-45-6789"
    error = refusal(
        DETAILS, answer(status, success=False, error=canary, errors=[canary], code=canary, messages=[canary])
    )
    assert "Jane" not in f"{error} {error!r} {error.args} {vars(error)}"
    assert error.__cause__ is None
    assert error.__context__ is None


@pytest.mark.parametrize(
    "error",
    [
        ServiceBusy("queue", "status 429", 3.0),
        CallNotFound("details", status=200, code="NotFound"),
        OutcomeUnknown("enroll", "status 502"),
    ],
)
def test_error_survives_pickling(error: ResellerError) -> None:
    """A job queue may carry an error between processes: it arrives whole."""
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301  (our own bytes)
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))


def test_error_tree_is_drawn_as_it_is() -> None:
    """The module's drawing names every error there is, each below its parent."""
    drawing = [line for line in (all_errors.__doc__ or "").splitlines() if "──" in line]
    drawn = [line.split("── ")[1].split()[0] for line in drawing]
    kinds = {
        name: kind for name, kind in vars(all_errors).items() if isinstance(kind, type) and issubclass(kind, Exception)
    }
    assert sorted(drawn) == sorted(name for name in kinds if name != "ResellerError")
    parent = {0: "ResellerError"}
    for line, name in zip(drawing, drawn, strict=True):
        depth = line.index("── ") // 4
        parent[depth] = name
        assert kinds[name].__base__ is kinds[parent[depth - 1]]

"""What the service itself says of a failure: kept with the error, shown in full to who asked, in plain words elsewhere."""

import pickle
from typing import Any

import msgspec
import pytest

from callkeeper.service.answer_meaning import effect_verdict, verdict
from callkeeper.service.answer_parsing import Reader
from callkeeper.service.answer_records import BaseAnswer
from callkeeper.service.endpoints import ADD_INSTITUTION, ENROLL, QUEUE
from callkeeper.service.errors import OutcomeUnknown, ResellerError, ServiceBusy, ServiceRefused, ServiceUnavailable
from tests.unit.service.service import responded

READER = Reader(BaseAnswer)
NAMED = "Phone call not found for Ada Example"


def failure(body: Any, status: int = 200, *, is_effect: bool = False) -> ResellerError:
    """Return the error that an answer amounts to."""
    answer = responded(status, body if isinstance(body, bytes) else msgspec.json.encode(body))
    judge, endpoint = (effect_verdict, ENROLL) if is_effect else (verdict, ADD_INSTITUTION if status == 400 else QUEUE)
    with pytest.raises(ResellerError) as caught:
        judge(endpoint, answer, READER)
    return caught.value


@pytest.mark.parametrize(
    ("body", "status", "full"),
    [
        ({"success": False, "error": NAMED}, 200, NAMED),
        ({"success": False, "errors": [NAMED, "Try later"]}, 200, f"{NAMED}; Try later"),
        ({"success": False, "error": NAMED, "errors": [NAMED], "messages": ["Seen"]}, 200, f"{NAMED}; Seen"),
        (
            {"title": "Invalid", "detail": "Key is in use", "errors": {"key": ["Too long"]}},
            400,
            "Invalid; Key is in use; Too long",
        ),
        ({"error": "down"}, 500, "down"),
        ({"success": False, "errors": [None, 7, {"x": 1}]}, 200, ""),
        (b"<html>", 500, ""),
        ([1], 500, ""),
    ],
    ids=["error", "errors", "once-each", "problem", "5xx", "odd", "html", "list"],
)
def test_error_carries_what_the_service_said(body: Any, status: int, full: str) -> None:
    """``error``, ``errors``, ``messages`` and problem details, each once, whatever else is wrong with the answer."""
    error = failure(body, status)
    assert error.full == full
    for word in ("Ada", "Example"):
        assert word not in f"{error} {error!r} {error.plain} {error.args}"


def test_plain_text_names_nobody() -> None:
    """What logs and pages get is made of known words only."""
    assert failure({"success": False, "error": NAMED}).plain == "Phone call not found for …"


@pytest.mark.parametrize(
    ("body", "plain"),
    [
        (b"<html>", "status 200, no content type, not the service's JSON"),
        (b'{"success":"no"}', "status 200, BaseAnswer.success"),
        (b"{}", "success is missing"),
    ],
)
def test_unreadable_answer_names_what_is_wrong_with_it(body: bytes, plain: str) -> None:
    """Logs say which field of an answer is not as the Spec describes it; the service says nothing itself."""
    assert failure(body).plain == plain


def test_effect_in_doubt_carries_it_too() -> None:
    """The answer says something, and not whether the effect was applied."""
    error = failure({"error": "Database timeout"}, 500, is_effect=True)
    assert isinstance(error, OutcomeUnknown)
    assert error.full == "Database timeout"


def test_texts_do_not_travel_with_a_copied_error() -> None:
    """An error that is pickled, as for a job, loses them: they may be about a person."""
    for kind in (
        ServiceRefused("queue", status=200),
        ServiceUnavailable("queue", "status 500"),
        ServiceBusy("queue", "", 2),
    ):
        error = kind.saying(failure({"success": False, "error": NAMED}).texts)
        copied = pickle.loads(pickle.dumps(error))  # noqa: S301  (our own bytes)
        assert (type(copied), str(copied), copied.full) == (type(error), str(error), "")
        assert vars(copied) == vars(error) | {"texts": ()}

"""The push endpoint's responses."""

import json

import pytest
from starlette.responses import Response

from receiver import responses

REFUSALS = {
    401: responses.unauthorized(),
    429: responses.too_many_attempts(30),
    415: responses.unsupported_media_type(),
    413: responses.too_large(16_384),
    400: responses.client_left(),
}


@pytest.mark.parametrize(("status", "response"), REFUSALS.items(), ids=map(str, REFUSALS))
def test_refusal_before_the_body_was_read_closes_the_connection(status: int, response: Response) -> None:
    """Else the server would wait for the rest."""
    assert response.status_code == status
    assert response.headers["connection"] == "close"
    assert json.loads(bytes(response.body))["accepted"] is False


@pytest.mark.parametrize("response", REFUSALS.values(), ids=map(str, REFUSALS))
def test_refusal_names_the_field_and_what_is_expected(response: Response) -> None:
    """People read it on the service's settings page, and must see what to repair."""
    refusal = json.loads(bytes(response.body))
    assert refusal.keys() == {"accepted", "error", "field", "expected"}
    assert all(refusal[name] for name in ("error", "field", "expected"))


def test_answers_say_when_to_come_again() -> None:
    """The service repeats a push that was not accepted."""
    assert responses.too_many_attempts(30).headers["retry-after"] == "30"
    assert responses.unavailable().headers["retry-after"] == str(responses.RETRY_AFTER_S)
    assert responses.unavailable().status_code == 503


def test_accepted_event_has_its_id_and_an_unreadable_one_its_field() -> None:
    """Both are JSON."""
    accepted = responses.accepted("0" * 32)
    assert (accepted.status_code, json.loads(bytes(accepted.body))) == (202, {"accepted": True, "event_id": "0" * 32})
    unreadable = responses.unreadable("Type", "CallStart or CallEnd")
    assert json.loads(bytes(unreadable.body))["field"] == "Type"
    assert "connection" not in unreadable.headers

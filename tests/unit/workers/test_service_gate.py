"""What a finished request says of the service, of an institution, and of the account."""

import pytest

from callkeeper.calls.store.breakers import ACCOUNT, RequestResult
from callkeeper.service import (
    AccessRefused,
    AnswerUnreadable,
    CallNotFound,
    LoginRefused,
    NotSent,
    OutcomeUnknown,
    ResellerError,
    ServiceBusy,
    ServiceUnavailable,
    TokenLapsed,
    TurnedAway,
    Unsendable,
)
from callkeeper.service.endpoints import DETAILS, ENROLL, INSTITUTIONS, TOKEN, Endpoint
from workers.service_gate import result_of

KEY = "cu-1"
ANSWERS, FAILS = (RequestResult.ANSWER, KEY), (RequestResult.FAILURE, KEY)
AWAY_AT_THE_LOGIN = ServiceUnavailable(TOKEN.name, "status 503", 503)


def kept_back(because: Exception | None) -> NotSent:
    """Return the error of an effect of which no byte was sent."""
    error = NotSent(ENROLL.name, "nothing was sent")
    error.__cause__ = because
    return error


SAID: dict[str, tuple[Endpoint, ResellerError | None, tuple[RequestResult, str] | None]] = {
    "answer": (DETAILS, None, ANSWERS),
    "refusal of one call": (DETAILS, CallNotFound(DETAILS.name, status=404), ANSWERS),
    "answer that nobody can read": (DETAILS, AnswerUnreadable(DETAILS.name, "no JSON"), ANSWERS),
    "status 503": (DETAILS, ServiceUnavailable(DETAILS.name, "status 503", 503), FAILS),
    "effect without an answer": (ENROLL, OutcomeUnknown(ENROLL.name, "no answer"), FAILS),
    "429": (DETAILS, ServiceBusy(DETAILS.name, "status 429"), ANSWERS),
    "429 with a pause": (DETAILS, ServiceBusy(DETAILS.name, "status 429", 7.0), (RequestResult.PAUSE, KEY)),
    "429 of an effect": (ENROLL, TurnedAway(ENROLL.name, "status 429"), ANSWERS),
    "429 of an effect with a pause of 0 s": (
        ENROLL,
        TurnedAway(ENROLL.name, "status 429", 0.0),
        (RequestResult.PAUSE, KEY),
    ),
    "401 with a good token": (DETAILS, AccessRefused(DETAILS.name, 60.0), (RequestResult.ANSWER, ACCOUNT)),
    "401 with an old token": (DETAILS, TokenLapsed(DETAILS.name, "status 401"), None),
    "no connection": (ENROLL, kept_back(None), FAILS),
    "read before an effect that fails": (ENROLL, kept_back(ServiceUnavailable(DETAILS.name, "status 503", 503)), FAILS),
    "login before an effect that fails": (ENROLL, kept_back(AWAY_AT_THE_LOGIN), (RequestResult.FAILURE, ACCOUNT)),
    "our guard": (ENROLL, kept_back(RuntimeError("frozen too long")), None),
    "value that cannot be sent": (DETAILS, Unsendable(DETAILS.name, "a line break"), None),
    "login before a read that fails": (DETAILS, AWAY_AT_THE_LOGIN, (RequestResult.FAILURE, ACCOUNT)),
    "login that is refused": (TOKEN, LoginRefused(TOKEN.name, "status 401"), (RequestResult.LOGIN, ACCOUNT)),
    "login that succeeds": (TOKEN, None, None),
    "standing": (INSTITUTIONS, ServiceUnavailable(INSTITUTIONS.name, "status 503", 503), None),
}


@pytest.mark.parametrize(("endpoint", "error", "expected"), SAID.values(), ids=SAID)
def test_request_says_of_its_scope(
    endpoint: Endpoint, error: ResellerError | None, expected: tuple[RequestResult, str] | None
) -> None:
    """Only an institution's own trouble counts as its failure, and a failed login as one of the account."""
    assert result_of(endpoint, KEY, error) == expected

"""What an answer means: the record it holds, or the error it amounts to. Pure.

`success` decides, not the status alone (Spec, Errors 1). A status the Spec gives a meaning to (401), or that says the
service did not get to answer (429, 5xx), is believed before the body is looked at.

What the service says of a failure is kept with the error. Spec: Base response (``error``, ``errors``, ``messages``);
Errors 3 (problem response). Assumed: a problem response has the fields that ``application/problem+json`` usually has,
as the Spec does not show them.
"""

import re
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from typing import TypeVar

from reseller.answers import BaseAnswer
from reseller.endpoints import ADD_INSTITUTION, DETAILS, INSTITUTION, LOGIN_AS, UPDATE_INSTITUTION, Endpoint
from reseller.errors import (
    AnswerUnreadable,
    CallNotFound,
    InstitutionNotFound,
    OutcomeUnknown,
    ResellerError,
    ServiceBusy,
    ServiceRefused,
    ServiceUnavailable,
    TokenLapsed,
    TurnedAway,
)
from reseller.reading import Reader, Unreadable, parse
from reseller.secret import Secret
from reseller.transport import ServiceResponse

_FIELDS = ("error", "title", "detail", "message", "errors", "messages")

MOST = 20
"""Texts that are kept of one answer."""


def texts_of(answer: ServiceResponse) -> tuple[Secret, ...]:
    """Return the texts in an answer, each once; none of one that cannot be read."""
    try:
        body = parse(answer.content)
    except Unreadable:
        return ()
    if not isinstance(body, dict):
        return ()
    found = dict.fromkeys(text for name in _FIELDS for text in _texts(body.get(name)))
    return tuple(Secret(text) for text in list(found)[:MOST])


def _texts(value: object) -> Iterator[str]:
    """Yield the texts of a field: one, a list of them, or lists by the name of a request's field."""
    match value:
        case str() if value.strip():
            yield value.strip()
        case list():
            yield from (text.strip() for text in value if isinstance(text, str) and text.strip())
        case dict():
            for texts in value.values():
                yield from (text.strip() for text in texts if isinstance(text, str)) if isinstance(texts, list) else ()
        case _:
            pass


A = TypeVar("A", bound=BaseAnswer)

MAX_RETRY_AFTER_S = 60.0
"""However long the service asks to be left alone, it is looked at again after this."""

_INSTITUTION_ENDPOINTS = (INSTITUTION, UPDATE_INSTITUTION, LOGIN_AS)
_CODE = re.compile(r"(?!.*\d{5})[A-Za-z][A-Za-z0-9_.-]{0,39}")


def verdict(endpoint: Endpoint, answer: ServiceResponse, reader: Reader[A], *, needs_success: bool = True) -> A:
    """Return the record of an answer that succeeded.

    Args:
        endpoint: Which was asked.
        answer: Whole.
        reader: Of the endpoint's kind of answer.
        needs_success: False for the endpoints that the Spec shows without a base response.

    Raises:
        TokenLapsed: 401.
        ServiceBusy: 429.
        ServiceUnavailable: 5xx.
        ServiceRefused: ``success`` is false; or the problem response of add-institution.
        AnswerUnreadable: Anything that the Spec does not describe.

    Spec: Base response; Errors. Assumed: ``success: false`` with a 4xx is a refusal as with 200; statuses beyond the named
    ones are not shown.
    """
    try:
        return _verdict(endpoint, answer, reader, needs_success=needs_success)
    except ResellerError as error:
        error.saying(texts_of(answer))
        raise


def _verdict(endpoint: Endpoint, answer: ServiceResponse, reader: Reader[A], *, needs_success: bool) -> A:
    check_status(endpoint, answer)
    record = _read(endpoint, answer, reader)
    if record.success is False:
        raise _refusal(endpoint, answer, record)
    if record.success is None and answer.status_code == 400 and endpoint is ADD_INSTITUTION:
        raise ServiceRefused(endpoint.name, status=400)
    if not 200 <= answer.status_code < 300:
        raise AnswerUnreadable(endpoint.name, f"status {answer.status_code}")
    if record.success is None and needs_success:
        raise AnswerUnreadable(endpoint.name, "success is missing")
    return record


def effect_verdict(endpoint: Endpoint, answer: ServiceResponse, reader: Reader[A]) -> A:
    """Return the record of an effect that was applied.

    Raises:
        TokenLapsed: 401.
        ServiceRefused: ``success`` is false: understood and declined.
        TurnedAway: 429.
        OutcomeUnknown: Everything else, 503 included. Assumed: the Spec does not say that nothing was done then.
    """
    unknown: OutcomeUnknown
    try:
        return verdict(endpoint, answer, reader)
    except ServiceBusy as error:
        unknown, texts = TurnedAway(endpoint.name, error.reason, error.retry_after_s), error.texts
    except (ServiceUnavailable, AnswerUnreadable) as error:
        unknown, texts = OutcomeUnknown(endpoint.name, error.reason), error.texts
    raise unknown.saying(texts)


def check_status(endpoint: Endpoint, answer: ServiceResponse) -> None:
    """Raise what a status alone says.

    Raises:
        TokenLapsed: 401.
        ServiceBusy: 429.
        ServiceUnavailable: 5xx.
    """
    if answer.status_code == 401:
        raise TokenLapsed(endpoint.name, "status 401")
    if answer.status_code == 429:
        raise ServiceBusy(endpoint.name, "status 429", retry_after_s(answer))
    if answer.status_code >= 500:
        # Retry-After of a 503 is not obeyed: it guesses when an outage ends. A 429 states a limit.
        raise ServiceUnavailable(endpoint.name, f"status {answer.status_code}")


def retry_after_s(answer: ServiceResponse) -> float | None:
    """Return how long the service asks to be left alone, in seconds, at most a minute; None if it does not say.

    A date is measured against the answer's own ``Date``, not against our clock.
    """
    text = (answer.headers.get("retry-after") or "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), MAX_RETRY_AFTER_S)
    try:
        wait = parsedate_to_datetime(text) - parsedate_to_datetime(answer.headers.get("date") or "")
    except (ValueError, TypeError):
        return None
    return min(max(wait.total_seconds(), 0.0), MAX_RETRY_AFTER_S)


def _read(endpoint: Endpoint, answer: ServiceResponse, reader: Reader[A]) -> A:
    try:
        return reader.read(answer.content)
    except Unreadable as error:
        reason = str(error)
    raise AnswerUnreadable(endpoint.name, f"status {answer.status_code}, {reason}")


def _refusal(endpoint: Endpoint, answer: ServiceResponse, record: BaseAnswer) -> ServiceRefused:
    code = record.code if record.code and _CODE.fullmatch(record.code) else None
    return _kind(endpoint, answer, record)(endpoint.name, status=answer.status_code, code=code)


def _kind(endpoint: Endpoint, answer: ServiceResponse, record: BaseAnswer) -> type[ServiceRefused]:
    texts = [record.code or "", *(text.reveal() for text in (record.error, *record.errors) if text is not None)]
    words = " ".join(re.sub(r"[\s_-]", "", text).lower() for text in texts)
    is_missing = answer.status_code == 404 or "notfound" in words
    if "institutionnotfound" in words or (is_missing and endpoint in _INSTITUTION_ENDPOINTS):
        return InstitutionNotFound
    if "callnotfound" in words or (is_missing and endpoint is DETAILS):
        return CallNotFound
    return ServiceRefused

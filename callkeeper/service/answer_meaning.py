"""Interprets an answer: returns its record, or raises the error that it means. Pure functions.

`success` decides, not the status alone (Spec, Errors 1). Only a status with a meaning in the Spec (401), or one that
says the service could not answer (429, 5xx), is acted on before the body is read.

The service's own words about a failure are kept with the error. Spec: Base response (``error``, ``errors``,
``messages``); Errors 3 (problem response). Assumed (`problem-fields`): a problem response has the usual fields of
``application/problem+json``, as the Spec does not show them.

Assumed (`institution-list-form`): the list of institutions, whose wrapper the Spec does not show, is either a bare
array, or an object in which exactly one property other than those of the base response is an array. Five fields of each
entry are read. The rest, including secrets, is dropped at once.
"""

import re
from collections.abc import Iterator
from typing import TypeVar

from callkeeper.service.answer_parsing import Reader, Unreadable, parse
from callkeeper.service.answer_records import BaseAnswer, InstitutionSummary, TokenAnswer
from callkeeper.service.config import MAX_RETRY_AFTER_S
from callkeeper.service.endpoints import (
    ADD_INSTITUTION,
    DETAILS,
    INSTITUTION,
    INSTITUTIONS,
    LOGIN_AS,
    QUEUE,
    TOKEN,
    UPDATE_INSTITUTION,
    Endpoint,
    ServiceResponse,
)
from callkeeper.service.errors import (
    AnswerUnreadable,
    CallNotFound,
    ForeignAnswer,
    InstitutionNotFound,
    LoginRefused,
    OutcomeUnknown,
    ResellerError,
    ServiceBusy,
    ServiceRefused,
    ServiceUnavailable,
    TokenLapsed,
    TurnedAway,
)
from callkeeper.service.phone_calls import PhoneCall
from callkeeper.service.retry_after import retry_after_s
from callkeeper.service.secret import Secret

_FIELDS = ("error", "title", "detail", "message", "errors", "messages")

_MOST_TEXTS = 20
"""How many texts of one answer are kept."""


def _texts_of(answer: ServiceResponse) -> tuple[Secret, ...]:
    """Return the distinct texts in an answer; none if it cannot be read.

    Assumed (`refusal-words`): the words of a refusal are in any of these fields, with a ``code`` or without.
    """
    try:
        body = parse(answer.content)
    except Unreadable:
        return ()
    if not isinstance(body, dict):
        return ()
    found = dict.fromkeys(text for name in _FIELDS for text in _texts(body.get(name)))
    return tuple(Secret(text) for text in list(found)[:_MOST_TEXTS])


def _texts(value: object) -> Iterator[str]:
    """Yield the texts of a field: one text, a list of them, or lists by the name of a request's field."""
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


_PROXY_LOGIN = 407
_ITS_OWN = (401, 429, 500)
"""Statuses that the service itself may give without JSON. Its gateways may, too, and fail with the others above 500."""
_MEDIA_TYPE = re.compile(r"[a-z]+/[a-z0-9.+-]{1,40}")


def foreign_answer(answer: ServiceResponse) -> ForeignAnswer | None:
    """Return what is seen of an answer that is clearly not the service's; None if it may be.

    It asks for a proxy's login, has a body that is no JSON, or is a redirection without JSON.

    Spec: What the service does 4 (responses are JSON objects). Assumed (`page-is-absence`): something before the service
    gives it: a proxy, a captive portal, a gateway, a maintenance page.
    """
    if not _is_foreign(answer.status_code, answer.content):
        return None
    media_type = _media_type(answer)
    return ForeignAnswer(answer.status_code, media_type if _MEDIA_TYPE.fullmatch(media_type) else "")


def _is_foreign(status: int, content: bytes) -> bool:
    if status in (_PROXY_LOGIN, *_ITS_OWN):
        return status == _PROXY_LOGIN
    begins = content.lstrip()[:1]
    if begins in (b"{", b"[", b""):
        return not begins and 300 <= status < 400
    try:
        parse(content)  # rare: a byte order mark, or JSON that is no object
    except Unreadable:
        return True
    return False


def _media_type(answer: ServiceResponse) -> str:
    content_type: str = answer.headers.get("content-type", "")
    return content_type.partition(";")[0].strip().lower()


A = TypeVar("A", bound=BaseAnswer)

_INSTITUTION_ENDPOINTS = (INSTITUTION, UPDATE_INSTITUTION, LOGIN_AS)
_REFUSE_BY_PROBLEM = {400: (ADD_INSTITUTION, QUEUE), 404: (DETAILS, *_INSTITUTION_ENDPOINTS)}
"""By status, the endpoints whose problem response is a refusal. That of an effect leaves its outcome unknown."""
_PROBLEM = "application/problem+json"
_CODE = re.compile(r"(?!.*\d{5})[A-Za-z][A-Za-z0-9_.-]{0,39}")


def verdict(endpoint: Endpoint, answer: ServiceResponse, reader: Reader[A], *, needs_success: bool = True) -> A:
    """Return the record of a successful answer.

    ``needs_success`` is False for the endpoints that the Spec shows without a base response.

    Raises:
        TokenLapsed: 401.
        ServiceBusy: 429.
        ServiceUnavailable: 5xx, or an answer that is clearly not the service's.
        ServiceRefused: ``success`` is false; or it is missing, as in a problem response: a 400 of add-institution or
            the queue, a 404 of details or an institution.
        AnswerUnreadable: Anything that the Spec does not describe.

    Spec: Base response; Errors. Assumed (`refusal-status`): ``success: false`` with a 4xx is a refusal as with 200;
    statuses beyond the named ones are not shown.
    """
    try:
        return _verdict(endpoint, answer, reader, needs_success=needs_success)
    except ResellerError as error:
        error.saying(_texts_of(answer), foreign_answer(answer))
        raise


def _verdict(endpoint: Endpoint, answer: ServiceResponse, reader: Reader[A], *, needs_success: bool) -> A:
    _check_status(endpoint, answer)
    record = _read(endpoint, answer, reader)
    if record.success is False or (record.success is None and _is_refusal_by_problem(endpoint, answer)):
        raise _refusal(endpoint, answer, record)
    if not 200 <= answer.status_code < 300:
        raise AnswerUnreadable(endpoint.name, f"status {answer.status_code}")
    if record.success is None and needs_success:
        raise AnswerUnreadable(endpoint.name, "success is missing")
    if endpoint is QUEUE and b'"phoneCalls"' not in answer.content:
        # Assumed (`queue-has-calls`): it is broken. Read as an empty queue, it would end every live call.
        raise AnswerUnreadable(endpoint.name, "phoneCalls is missing")
    return record


def _is_refusal_by_problem(endpoint: Endpoint, answer: ServiceResponse) -> bool:
    """Tell whether an answer without ``success`` is a problem response that refuses.

    A router in front that has lost the service may answer JSON, too. Taken for the service's "not found", it would end
    calls. Only of add-institution the Spec says that 400 is a problem response.
    """
    is_problem = _media_type(answer) == _PROBLEM or endpoint is ADD_INSTITUTION
    return is_problem and endpoint in _REFUSE_BY_PROBLEM.get(answer.status_code, ())


def login_verdict(answer: ServiceResponse, reader: Reader[TokenAnswer]) -> TokenAnswer:
    """Return the record of a successful login, which has a token.

    Raises:
        LoginRefused: The service answered and gave no token, so it may have counted a failed login: ``success`` is
            false, whatever the status; a 4xx; or an answer below 500 without ``success``.
        ServiceUnavailable: 5xx without ``success: false``, 429, or a proxy that asks for a login of its own.
        AnswerUnreadable: ``success`` without a token, or with one that cannot be sent in a header; a 404 or 2xx of
            something before the service.

    Spec: Errors 1. Assumed (`login-refusal-form`): the Spec does not show how credentials are refused, nor how many
    refusals lock an account.
    """
    try:
        record = verdict(TOKEN, answer, reader)
    except ResellerError as error:
        if not _refuses_login(answer):
            raise
        reason, texts, foreign = error.reason, error.texts, error.foreign
    else:
        if record.token:
            if (token := record.token.reveal()).isascii() and token.isprintable():
                return record
            raise AnswerUnreadable(TOKEN.name, "token cannot be sent")
        raise AnswerUnreadable(TOKEN.name, "token is missing")
    raise LoginRefused(TOKEN.name, reason).saying(texts, foreign)


def _refuses_login(answer: ServiceResponse) -> bool:
    if answer.status_code in (_PROXY_LOGIN, 408, 429):
        return False
    if 400 <= answer.status_code < 500 and answer.status_code != 404:
        return True
    try:
        success = _BASE.read(answer.content).success
    except Unreadable:
        return False
    return success is False or (success is None and answer.status_code < 500)


def effect_verdict(endpoint: Endpoint, answer: ServiceResponse, reader: Reader[A]) -> A:
    """Return the record of an effect that was applied.

    Raises:
        TokenLapsed: 401.
        ServiceRefused: ``success`` is false: understood and refused.
        TurnedAway: 429.
        OutcomeUnknown: Everything else, including 503. Assumed (`failed-503-after-acting`): the Spec does not say that
        nothing was done then.
    """
    unknown: OutcomeUnknown
    try:
        return verdict(endpoint, answer, reader)
    except ServiceBusy as error:
        unknown, texts, foreign = TurnedAway(endpoint.name, error.reason, error.retry_after_s), error.texts, None
    except (ServiceUnavailable, AnswerUnreadable) as error:
        unknown, texts = OutcomeUnknown(endpoint.name, error.reason, answer.status_code), error.texts
        foreign = error.foreign
    raise unknown.saying(texts, foreign)


def _check_status(endpoint: Endpoint, answer: ServiceResponse) -> None:
    """Raise the error that a status alone means, or an answer that is not the service's.

    Raises:
        TokenLapsed: 401.
        ServiceBusy: 429.
        ServiceUnavailable: 5xx, or something else answered.
    """
    if (foreign := foreign_answer(answer)) is not None:
        raise ServiceUnavailable(endpoint.name, foreign.words, answer.status_code).saying((), foreign)
    if answer.status_code == 401:
        raise TokenLapsed(endpoint.name, "status 401")
    if answer.status_code == 429:
        raise ServiceBusy(endpoint.name, "status 429", retry_after_s(answer.headers, MAX_RETRY_AFTER_S))
    if answer.status_code >= 500:
        # Retry-After of a 503 is ignored, because it guesses when an outage ends. A 429 states a limit.
        raise ServiceUnavailable(endpoint.name, f"status {answer.status_code}", answer.status_code)


def _read(endpoint: Endpoint, answer: ServiceResponse, reader: Reader[A]) -> A:
    try:
        return reader.read(answer.content)
    except Unreadable as error:
        reason = str(error)
    raise AnswerUnreadable(endpoint.name, f"status {answer.status_code}, {reason}")


def _refusal(endpoint: Endpoint, answer: ServiceResponse, record: BaseAnswer) -> ServiceRefused:
    texts = [record.code or "", *(text.reveal() for text in (record.error, *record.errors) if text is not None)]
    words = " ".join(re.sub(r"[\s_-]", "", text).lower() for text in texts)
    is_missing = answer.status_code == 404 or "notfound" in words
    kind = ServiceRefused
    if "institutionnotfound" in words or (is_missing and endpoint in _INSTITUTION_ENDPOINTS):
        kind = InstitutionNotFound
    elif "callnotfound" in words or (is_missing and endpoint is DETAILS):
        kind = CallNotFound
    code = record.code if record.code and _CODE.fullmatch(record.code) else None
    return kind(endpoint.name, status=answer.status_code, code=code)


_BASE = Reader(BaseAnswer)
_SUMMARY = Reader(InstitutionSummary)
BASE_LISTS = ("errors", "messages")
"""The arrays of the base response."""


def institution_list(answer: ServiceResponse) -> tuple[tuple[InstitutionSummary, ...], int]:
    """Return the institutions that can be read, and how many cannot.

    Raises:
        ServiceRefused: ``success`` is there and false.
        AnswerUnreadable: No list is found.
        TokenLapsed: 401.
        ServiceUnavailable: 429 or 5xx.

    Spec: Endpoints 8.
    """
    _check_status(INSTITUTIONS, answer)
    summaries = _summaries(answer) if 200 <= answer.status_code < 300 else None
    if summaries is None:
        raise AnswerUnreadable(INSTITUTIONS.name, f"status {answer.status_code}, no list of institutions")
    readable = tuple(summary for summary in summaries if summary is not None)
    return readable, len(summaries) - len(readable)


def _summaries(answer: ServiceResponse) -> list[InstitutionSummary | None] | None:
    """Return the entries of the list, None for those that cannot be read; None if there is no list.

    Only what is read leaves this function: the rest of an entry has secrets.
    """
    try:
        value = parse(answer.content)
    except Unreadable:
        return None
    if isinstance(value, dict):
        verdict(INSTITUTIONS, answer, _BASE, needs_success=False)
    lists = [[_summary(entry) for entry in array] for array in _arrays(value)]
    if len(lists) > 1:
        lists = [one for one in lists if any(summary and summary.status for summary in one)]
    return lists[0] if len(lists) == 1 else None


def _arrays(value: object, depth: int = 3) -> Iterator[list[object]]:
    """Yield the arrays in an object and its nested objects, except those of the base response; or the array itself."""
    if isinstance(value, list):
        yield value
    elif isinstance(value, dict) and depth:
        for name, inner in value.items():
            if name not in BASE_LISTS:
                yield from _arrays(inner, depth - 1)


def _summary(entry: object) -> InstitutionSummary | None:
    try:
        return _SUMMARY.of(entry)
    except Unreadable:
        return None


_CALL = Reader(PhoneCall)


def top_level_call(answer: ServiceResponse) -> PhoneCall:
    """Return the call of an answer that has it at the top level instead of in ``phoneCall``.

    Assumed (`details-place`): the Spec shows both places and no order.

    Raises:
        CallNotFound: No call is named there.
        AnswerUnreadable: It is no call.
    """
    try:
        call = _CALL.read(answer.content)
    except Unreadable as error:
        reason = str(error)
    else:
        if call.voice_id or call.phone_call_id:
            return call
        raise CallNotFound(DETAILS.name, status=answer.status_code)
    raise AnswerUnreadable(DETAILS.name, reason)

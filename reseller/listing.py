"""The list of institutions, whose wrapper the Spec does not show.

Assumed: either a bare array, or an object in which exactly one property beside the base response's own is an array.
Five fields of each entry are read; the rest of it, secrets included, never becomes a value.
"""

import msgspec

from reseller.answers import BaseAnswer
from reseller.bounded import ServiceResponse
from reseller.endpoints import INSTITUTIONS
from reseller.errors import AnswerUnreadable
from reseller.institutions import InstitutionSummary
from reseller.reading import Reader, Unreadable
from reseller.verdict import check_status, verdict

_BASE = Reader(BaseAnswer)
_SUMMARY = Reader(InstitutionSummary)
_BASE_LISTS = ("errors", "messages")
_array = msgspec.json.Decoder(list[msgspec.Raw])
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


def institution_list(answer: ServiceResponse) -> tuple[tuple[InstitutionSummary, ...], int]:
    """Return the institutions that can be read, and how many cannot.

    Raises:
        ServiceRefused: ``success`` is there and false.
        AnswerUnreadable: No list is found.
        TokenLapsed: 401.
        ServiceUnavailable: 429 or 5xx.

    Spec: Endpoints 8.
    """
    check_status(INSTITUTIONS, answer)
    entries = _entries(answer)
    if entries is None or not 200 <= answer.status_code < 300:
        raise AnswerUnreadable(INSTITUTIONS.name, f"status {answer.status_code}, no list of institutions")
    summaries = [_summary(entry) for entry in entries]
    readable = tuple(summary for summary in summaries if summary is not None)
    return readable, len(summaries) - len(readable)


def _entries(answer: ServiceResponse) -> list[msgspec.Raw] | None:
    try:
        if answer.content.lstrip()[:1] == b"[":
            return _array.decode(answer.content)
        wrapper = _object.decode(answer.content)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    verdict(INSTITUTIONS, answer, _BASE, needs_success=False)
    arrays = [raw for name, raw in wrapper.items() if name not in _BASE_LISTS and bytes(raw)[:1] == b"["]
    return _array.decode(arrays[0]) if len(arrays) == 1 else None


def _summary(entry: msgspec.Raw) -> InstitutionSummary | None:
    try:
        return _SUMMARY.read(bytes(entry))
    except Unreadable:
        return None

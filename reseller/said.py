"""What the service says of a failure, in whatever answer it says it.

Spec: Base response (``error``, ``errors``, ``messages``); Errors 3 (problem response). Assumed: a problem response has the
fields that ``application/problem+json`` usually has, as the Spec does not show them.
"""

from collections.abc import Iterator

from reseller.bounded import ServiceResponse
from reseller.reading import Unreadable, parse
from reseller.secret import Secret

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

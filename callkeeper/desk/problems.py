"""The desk's refusals: problem details with a fixed code each (RFC 9457). They never repeat what was sent."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Final

import msgspec
from starlette.responses import Response

from callkeeper.calls.action_status import MEANINGS
from callkeeper.calls.informed_words import WORDS

MEDIA_TYPE: Final = "application/problem+json"


class ReasonView(msgspec.Struct, frozen=True):
    """Why the law or the rules forbid an action: a name for software, and its meaning."""

    name: str
    meaning: str


class ProblemView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A refusal. ``code`` is what software branches on; ``title`` is the same for every problem of a code.

    ``facts``: what a word about the caller contradicts.
    """

    status: int
    code: str
    title: str
    detail: str | None = None
    facts: tuple[ReasonView, ...] = ()
    type: str = "about:blank"


class Problem(Exception):
    """Ends a request with a refusal."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        facts: Sequence[str] = (),
    ) -> None:
        super().__init__(code)
        self.view = ProblemView(
            status=status,
            code=code,
            title=CONTRADICTED if status == HTTPStatus.CONFLICT and code == "forbidden" else TITLES[code],
            detail=detail,
            facts=reasons_of(facts, WORDS),
        )
        self.headers = dict(headers or {})

    def response(self) -> Response:
        return Response(msgspec.json.encode(self.view), self.view.status, self.headers, media_type=MEDIA_TYPE)


CONTRADICTED: Final = "What is known of the caller forbids that. It is recorded, and nothing follows from it."

TITLES: Final = {
    "evidence_against": "Something speaks against the caller. If it still holds, say it again and name that in despite.",
    "unauthorized": "A valid bearer token or ticket is required.",
    "too_often": "Too many requests without a valid token or ticket came from this address.",
    "too_many_streams": "This token has as many streams open as it may have.",
    "too_many_searches": "Too many searches run at this moment, of this token or of all; try again.",
    "too_many_tokens": "This token mints more tokens for agents than it may; try again.",
    "too_many_callers": "The pages of this agent ask for more callers than one agent talks to in an hour.",
    "too_many_waiting": "Too many statements about this call are waiting. This one was not accepted; try again later.",
    "forbidden": "This token may not do that.",
    "not_found": "It does not exist, or this token may not see it.",
    "method_not_allowed": "This address does not take that method.",
    "unsupported_media_type": "The body must be uncompressed application/json.",
    "too_large": "The body is too large.",
    "invalid": "A part of the request is missing or wrong.",
    "idempotency_key_reused": "This Idempotency-Key was used for another request.",
    "recorded_unconfirmed": "It is recorded, but a failover of Redis could lose it. Say it again with its Idempotency-Key: "
    "it stays the same action, whose id is in detail.",
    "unavailable": "Redis or the archive cannot be reached at this moment; try again.",
}
"""Every code there is."""


def reasons_of(names: Sequence[str], meanings: Mapping[str, str] = MEANINGS) -> tuple[ReasonView, ...]:
    """Return reasons with their meanings."""
    return tuple(ReasonView(name, meanings.get(name, name)) for name in names)


def unauthorized() -> Problem:
    """Refuse a request without a valid token or ticket, in the same words whatever was wrong."""
    return Problem(401, "unauthorized", headers={"WWW-Authenticate": 'Bearer realm="desk"'})


def too_many(code: str, wait_s: int = 5) -> Problem:
    """Refuse for now. The same request can be repeated after a wait, a statement under the same Idempotency-Key."""
    return Problem(429, code, headers={"Retry-After": str(wait_s)})


def forbidden(detail: str) -> Problem:
    """Refuse what a token's role, or its list of operators, does not include."""
    return Problem(403, "forbidden", detail)


def not_found() -> Problem:
    """Refuse what does not exist, or belongs to another institution, in the same words."""
    return Problem(404, "not_found")


def invalid(where: str, problem: str) -> Problem:
    """Refuse a malformed request, naming the place and what belongs there."""
    return Problem(400, "invalid", f"{where}: {problem}")


def unavailable() -> Problem:
    """Refuse because Redis or the archive cannot be reached."""
    return Problem(503, "unavailable", headers={"Retry-After": "2"})

"""The base of the service's answers, and its two forms of refusal.

Spec: Base response; Errors.
"""

import datetime as dt

import msgspec

from callkeeper_sandbox.service.institutions import SsoAction
from callkeeper_sandbox.service.records import QueueEntry, Wire


class Base(Wire, frozen=True, kw_only=True):
    """The fields of every answer.

    Spec: Base response.
    """

    success: bool = True
    error: str | None = None
    errors: list[str] | None = None
    messages: list[str] | None = None
    code: str | None = None


class TokenAnswer(Base, frozen=True, kw_only=True):
    """Spec: Token response."""

    token: str
    expires_on: dt.datetime
    institution_keys: list[str]


class UserTokenAnswer(Base, frozen=True, kw_only=True):
    """Spec: User token response."""

    token: str | None


class QueueAnswer(Base, frozen=True, kw_only=True):
    """Spec: Endpoints 3."""

    phone_calls: list[QueueEntry]


class AssignAnswer(Base, frozen=True, kw_only=True):
    """Spec: Endpoints 4."""

    voice_id: str


class LoginAnswer(Base, frozen=True, kw_only=True):
    """Spec: Endpoints 12."""

    token: str
    actions: list[SsoAction]


class Problem(Wire, frozen=True, kw_only=True):
    """A problem response. Assumed: the usual fields of such a body, since the Spec shows none."""

    type: str = "about:blank"
    title: str
    status: int = 400
    detail: str
    errors: dict[str, list[str]] | None = None


class RefusedError(Exception):
    """The service refuses a request: HTTP 200, `success` false.

    Assumed: the values of `code`, and that a malformed request is answered like this and not by an HTTP status.
    """

    def __init__(self, error: str, code: str | None = None) -> None:
        super().__init__(error)
        self.error = error
        self.code = code

    def answer(self) -> Base:
        """Build the answer that carries the message."""
        return Base(success=False, error=self.error, errors=[self.error], code=self.code)


class ProblemError(Exception):
    """An institution cannot be added: HTTP 400 with a problem body."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


class UnauthorizedError(Exception):
    """The token has lapsed or was never issued: HTTP 401."""


class Reply(msgspec.Struct):
    """An HTTP response."""

    status: int
    body: bytes
    headers: dict[str, str]


JSON = "application/json"
UNAUTHORIZED = Base(success=False, error="Unauthorized.", code="Unauthorized")
BUSY = Base(success=False, error="Too many requests.", code="Busy")
UNSERVED = Base(success=False, error="The service could not do this now.", code="Unserved")
"""The answer to a request that a fault prevents from being applied."""


def reply(answer: object, status: int = 200, media_type: str = JSON) -> Reply:
    """Encode an answer."""
    return Reply(status, msgspec.json.encode(answer), {"content-type": media_type})

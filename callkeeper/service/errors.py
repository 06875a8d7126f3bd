"""Everything that can go wrong with a request, sorted by what the caller should do.

::

    ResellerError
    ├── ServiceUnavailable        try again: no whole answer in time, or a 5xx
    │   └── ServiceBusy           ... but not before `retry_after_s`: 429
    ├── ServiceRefused            do not: the service understood and refused (`success` is false)
    │   ├── CallNotFound          ... because it knows no such call
    │   └── InstitutionNotFound   ... or no such institution
    ├── NotSent                   certainly no byte was written: it may be sent again
    │   └── Unsendable            ... but not with this value, which no request can carry
    ├── AccessRefused             HTTP 401 though the token is good: pause this operation for this institution
    ├── TokenLapsed               HTTP 401: for a check, renew the token and book again; for an effect, read first
    ├── OutcomeUnknown            an effect may or may not have been applied: read, never repeat
    │   └── TurnedAway            ... 429: most likely it was not; read first, as after a 401
    ├── NeedsPerson               alert a person
    │   ├── LoginRefused          the service account was refused
    │   ├── TokenFault            a token just issued was refused
    │   └── CertificateRefused    the service's TLS certificate does not verify
    └── AnswerUnreadable          the answer is not what the Spec describes

A message holds the endpoint's name, a status and a short reason. It never holds a body, a header, a token, or the
service's own error text, which may contain personal data. That text is in ``full``, for the person who asked on the
command line, and in ``plain``, reduced to known words, for logs and pages. For the same reason these errors have no
error of the HTTP library as cause or context: its request holds the token.
"""

from dataclasses import dataclass
from typing import Self

from callkeeper.service.network_failure import CertificateFault
from callkeeper.service.secret import Secret, plain_words


@dataclass(frozen=True, slots=True)
class ForeignAnswer:
    """What is seen of an answer that something between us and the service gave in its place: never its body."""

    status: int
    media_type: str

    @property
    def words(self) -> str:
        """Return this for people, in a line."""
        return f"status {self.status}, {self.media_type or 'no content type'}, not the service's JSON"


class ResellerError(Exception):
    """Anything that went wrong in an exchange with the service.

    ``texts`` are the service's own words. A copy of the error has none. ``foreign``: what is seen of the answer, if it is
    clearly not the service's.
    """

    def __init__(self, endpoint: str, reason: str) -> None:
        super().__init__(endpoint, reason)
        self.texts: tuple[Secret, ...] = ()
        self.foreign: ForeignAnswer | None = None
        self.endpoint = endpoint
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.endpoint}: {self.reason}"

    def __reduce__(self) -> tuple[object, ...]:
        return type(self).__new__, (type(self), *self.args), {**self.__dict__, "texts": ()}

    def saying(self, texts: tuple[Secret, ...], foreign: ForeignAnswer | None = None) -> Self:
        """Attach the service's own words, or what is seen of an answer that is not the service's."""
        self.texts, self.foreign = texts, foreign
        return self

    @property
    def full(self) -> str:
        """Return the service's own words, only for the person who asked. They may contain personal data."""
        return "; ".join(text.reveal() for text in self.texts)

    @property
    def plain(self) -> str:
        """Return the service's own words without anything that may name a person; our reason if there are none."""
        return plain_words(self.full) or self.reason

    @property
    def brief(self) -> str:
        """Return our reason and the service's own words, as ``plain`` has them: for people, in one line."""
        words = plain_words(self.full)
        return f"{self.reason}: {words}" if words else self.reason


class ServiceUnavailable(ResellerError):
    """No whole answer came in time, or the service failed: try again later.

    ``status`` is the HTTP status of the answer; None if none came.
    """

    def __init__(self, endpoint: str, reason: str, status: int | None = None) -> None:
        super().__init__(endpoint, reason)
        self.status = status


class ServiceBusy(ServiceUnavailable):
    """The service asks for a pause (429).

    ``retry_after_s`` is how long in seconds, at most a minute; None if it gave no time.

    Spec: Limits. Assumed (`busy-is-of-institution`): rate limits are not shown. The time in a 503 only guesses when an
    outage ends, so it is ignored: one small request every three seconds finds the end.
    """

    def __init__(self, endpoint: str, reason: str, retry_after_s: float | None = None) -> None:
        super().__init__(endpoint, reason, 429)
        self.retry_after_s = retry_after_s


class ServiceRefused(ResellerError):
    """The service understood the request and refused it, so repeating it is useless.

    ``code`` is the answer's own code if it looks like one (letters first, at most 40 characters, no long digit runs),
    else None. ``status`` is the HTTP status.

    Spec: Errors 1 and 4.
    """

    def __init__(self, endpoint: str, *, status: int, code: str | None = None) -> None:
        super().__init__(endpoint, f"refused with status {status}" + (f", code {code}" if code else ""))
        self.status = status
        self.code = code


class CallNotFound(ServiceRefused):
    """The service knows no such call.

    Spec: Errors 1. Assumed (`not-found-words`): recognised by status 404, by "not found" in ``code`` or ``error``, or
    by details that succeed without a record; code values are not shown.
    """


class InstitutionNotFound(ServiceRefused):
    """The service knows no such institution (recognised like `CallNotFound`)."""


class NotSent(ResellerError):
    """Certainly no byte of the request was written. The cause, if there is one, says why."""


class Unsendable(NotSent):
    """A value cannot be sent in a path or a header. No request with it is possible."""


class TokenLapsed(ResellerError):
    """HTTP 401: the token lapsed, or the account lacks a right.

    Spec: Authentication 4. Assumed (`refused-401-before-acting`): a 401 is given before anything is done. For an effect
    that is looked up all the same.
    """


class AccessRefused(ResellerError):
    """HTTP 401 with a token that is new or works for others: the service refuses this institution or operation.

    ``retry_after_s`` is for how many seconds no such request is sent. ``arrived`` is False for a request that was held
    back because of that.

    Assumed (`refused-401-scope`): the Spec knows 401 only as a lapsed token.
    """

    def __init__(self, endpoint: str, retry_after_s: float, arrived: bool = True) -> None:
        reason = "status 401, and a new login does not help" if arrived else "not sent, because of an earlier 401"
        super().__init__(endpoint, f"{reason}; tried again in {retry_after_s:.1f} s")
        self.retry_after_s = retry_after_s
        self.arrived = arrived


class OutcomeUnknown(ResellerError):
    """The effect may or may not have been applied. Read the call before sending it again.

    ``status`` is the HTTP status of the answer; None if no whole answer came.
    """

    def __init__(self, endpoint: str, reason: str, status: int | None = None) -> None:
        super().__init__(endpoint, reason)
        self.status = status


class TurnedAway(OutcomeUnknown):
    """An effect got 429: too many requests. ``retry_after_s`` is as in `ServiceBusy`.

    Assumed (`busy-before-acting`): a 429 is given before anything is done. It is looked up all the same.
    """

    def __init__(self, endpoint: str, reason: str, retry_after_s: float | None = None) -> None:
        super().__init__(endpoint, reason, 429)
        self.retry_after_s = retry_after_s


class NeedsPerson(ResellerError):
    """Something that only a person can repair."""


class LoginRefused(NeedsPerson):
    """The service account's credentials were refused."""


class TokenFault(NeedsPerson):
    """A new token was refused before it was ever accepted. Logging in again does not help."""


class CertificateRefused(NeedsPerson):
    """The service's TLS certificate is expired, not trusted, or for another host: ``fault``."""

    def __init__(self, endpoint: str, fault: CertificateFault) -> None:
        super().__init__(endpoint, f"certificate verify failed: the certificate {fault}")
        self.fault = fault


class AnswerUnreadable(ResellerError):
    """The answer is not what the Spec describes: not JSON, too large, or without a required field."""

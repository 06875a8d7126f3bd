"""Everything that can go wrong with a request, sorted by what the caller should do.

::

    ResellerError
    ├── ServiceUnavailable        try again: no whole answer in time, or a 5xx
    │   └── ServiceBusy           ... not before `retry_after_s`: 429
    ├── ServiceRefused            do not: the service understood and declined (`success` is false)
    │   ├── CallNotFound          ... because it knows no such call
    │   └── InstitutionNotFound   ... or no such institution
    ├── NotSent                   provably no byte was written: it may be sent anew
    │   └── Unsendable            ... but not with this value, which no request can carry
    ├── AccessRefused             HTTP 401 though the token is good: leave this institution's operation alone for a while
    ├── TokenLapsed               HTTP 401: of a check, renew the token and book anew; of an effect, read first
    ├── OutcomeUnknown            an effect may or may not have been applied: read, never repeat
    │   └── TurnedAway            ... 429: most likely it was not; read first, as after a 401
    ├── NeedsPerson               wake a person
    │   ├── LoginRefused          the service account was refused
    │   ├── TokenFault            a token just issued was refused
    │   └── CertificateRefused    the service's TLS certificate does not verify
    └── AnswerUnreadable          the service broke its own document

A message carries the endpoint's name, a status, a short reason: never a body, a header, a token, or the
service's own error text, which may hold personal data. That text is in ``full``, for whoever asked on the command
line, and in ``plain``, with known words only, for logs and pages. For the same reason no error of the HTTP library
hangs on these as cause or context: its request holds the token.

``plain_words`` lets only words of a list through: the service's texts may repeat what was asked for, and nobody can
tell a name from a word by its shape.
"""

import re
from typing import Self

from reseller.secret import Secret

WORDS = frozenset(
    """
    a about access accesstoken account action activity after again all allowed already alternate an and another any are as
    assign assigned at authenticated authentication authorized bad be because been before being below between body bound
    busy but by call caller calls can cannot carrier central change check checks child client closed code config configured
    conflict connection contains content could credentials date day days deadline denied details device did digits disabled
    does down due during duplicate each edge email empty end ended endpoint enroll enrolled enrollment error event exceeded
    exist existing exists expected expired external failed failure feature field file first for forbidden format found from
    full gateway given greater guid had has have header hour hours id identifier if in inactive incorrect institution
    institutionkey institutions internal invalid is it item json key last later length less limit limited list live locked
    login long longer low maximum may member message method minimum minute minutes missing more must name network new no none
    not number of off offline on one only open operation or other out over owned page pagesize parameter parse password path
    pending permission person personid phone phonenumber please policy present processed processing profile property provided
    provider query queue rate read reason received record rejected reject request requested requestedby requests require
    required resource response result retry right same second seconds see send sent server service session should size
    sso ssotoken start started state status still stored string success supported system target temporarily than that the
    their there this time timeout timed to token too try type unauthorized unavailable under unexpected unknown unsupported
    until update url use used user username valid validation validationtype value values vendor verification verified version
    voice voiceid voiceprint wait was were when which while will with within without write wrong yet you your zero
    """.split()  # noqa: SIM905  (a table of words is read as a text)
)
"""Words of which error messages consist, in lower case: none is a name."""

MOST = 200
_HIDDEN = "…"
_PIECE = re.compile(r"[^\s]+")
_BARE = re.compile(r"^([(\[]*)([A-Za-z]+)([)\].,:;!?]*)$")
_TAIL = re.compile(r"[.,:;!?]*$")


def plain_words(text: str) -> str:
    """Return a text in one line of at most 200 characters, with an ellipsis for whatever is not a word of the list."""
    pieces: list[str] = []
    for piece in _PIECE.findall(text[: 10 * MOST]):
        bare = _BARE.match(piece)
        plain = piece if bare and bare.group(2).lower() in WORDS else _HIDDEN + _tail(piece)
        if plain.startswith(_HIDDEN) and pieces and pieces[-1].startswith(_HIDDEN):
            pieces.pop()
        pieces.append(plain)
    line = " ".join(pieces)
    return line if len(line) <= MOST else line[: MOST - 1].rstrip() + _HIDDEN


def _tail(piece: str) -> str:
    found = _TAIL.search(piece)
    return found.group(0)[:1] if found else ""


class ResellerError(Exception):
    """Anything that went wrong while talking to the service.

    ``texts`` are the service's own words. A slot, because an error's other attributes travel with its copies.
    """

    __slots__ = ("texts",)

    texts: tuple[Secret, ...]

    def __init__(self, endpoint: str, reason: str) -> None:
        super().__init__(endpoint, reason)
        self.texts = ()
        self.endpoint = endpoint
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.endpoint}: {self.reason}"

    def saying(self, texts: tuple[Secret, ...]) -> Self:
        """Attach the service's own words."""
        self.texts = texts
        return self

    @property
    def full(self) -> str:
        """Return the service's own words, for the person who asked; they may be about somebody."""
        return "; ".join(text.reveal() for text in self.texts)

    @property
    def plain(self) -> str | None:
        """Return the service's own words without whatever may name a person; None if it said nothing."""
        return plain_words(self.full) or None


class ServiceUnavailable(ResellerError):
    """No whole answer came in time, or the service failed: try again later."""


class ServiceBusy(ServiceUnavailable):
    """The service asks to be left alone for a while (429).

    ``retry_after_s`` is what it asked for, in seconds, at most a minute, or None if it named no time.

    Spec: Limits. Assumed: rate limits are not shown. What a 503 says of the time is a guess at the end of an outage and is
    not obeyed: one small request every three seconds finds the end.
    """

    def __init__(self, endpoint: str, reason: str, retry_after_s: float | None = None) -> None:
        super().__init__(endpoint, reason)
        self.args = (endpoint, reason, retry_after_s)
        self.retry_after_s = retry_after_s


class ServiceRefused(ResellerError):
    """The service understood the request and declined it: repeating it is useless.

    ``code`` is the answer's own code if it looks like one (letters first, at most 40 characters, no long
    digit runs), else None. ``status`` is the HTTP status.

    Spec: Errors 1 and 4.
    """

    def __init__(self, endpoint: str, *, status: int, code: str | None = None) -> None:
        super().__init__(endpoint, f"refused with status {status}" + (f", code {code}" if code else ""))
        self.status = status
        self.code = code

    def __reduce__(self) -> tuple[object, ...]:
        return _refused, (type(self), self.endpoint, self.status, self.code)


class CallNotFound(ServiceRefused):
    """The service knows no such call.

    Spec: Errors 1. Assumed: recognised by status 404, by "not found" in ``code`` or ``error``, or by details
    that succeed without a record; code values are not shown.
    """


class InstitutionNotFound(ServiceRefused):
    """The service knows no such institution (recognised like `CallNotFound`)."""


class NotSent(ResellerError):
    """Provably not one byte of the request was written; its cause, where there is one, says why."""


class Unsendable(NotSent):
    """A value cannot travel in a path or a header; the request will never be possible with it."""


class TokenLapsed(ResellerError):
    """HTTP 401: the token lapsed, or the account lacks a right.

    Spec: Authentication 4. Assumed: a 401 is given before anything is done. For an effect that is looked up all the same.
    """


class AccessRefused(ResellerError):
    """HTTP 401 with a token that was just issued or that others use: the service refuses this institution or operation.

    ``retry_after_s`` is for how many seconds no such request is sent; ``arrived`` is False for a
    request that was held back for that.

    Assumed: the Spec knows 401 only as a lapsed token.
    """

    def __init__(self, endpoint: str, retry_after_s: float, arrived: bool = True) -> None:
        reason = "status 401, and a new login does not help" if arrived else "left alone after a 401"
        super().__init__(endpoint, f"{reason}; asked again in {retry_after_s:.1f} s")
        self.args = (endpoint, retry_after_s, arrived)
        self.retry_after_s = retry_after_s
        self.arrived = arrived


class OutcomeUnknown(ResellerError):
    """The effect may or may not have been applied: read the call, never blindly send again."""


class TurnedAway(OutcomeUnknown):
    """An effect was answered 429: too many requests; ``retry_after_s`` as of `ServiceBusy`.

    Assumed: a 429 is given before anything is done. It is looked up all the same.
    """

    def __init__(self, endpoint: str, reason: str, retry_after_s: float | None = None) -> None:
        super().__init__(endpoint, reason)
        self.args = (endpoint, reason, retry_after_s)
        self.retry_after_s = retry_after_s


class NeedsPerson(ResellerError):
    """Nothing the software can repair by itself."""


class LoginRefused(NeedsPerson):
    """The service account's credentials were refused."""


class TokenFault(NeedsPerson):
    """A token just issued, never once accepted, was refused: logging in again does not help."""


class CertificateRefused(NeedsPerson):
    """The service's TLS certificate is expired, foreign, or for another host."""


class AnswerUnreadable(ResellerError):
    """The answer is not what the Spec describes: not JSON, too large, or without a required field."""


def _refused(kind: type[ServiceRefused], endpoint: str, status: int, code: str | None) -> ServiceRefused:
    return kind(endpoint, status=status, code=code)

"""The last error of each kind of request and each institution, in our own words, so that people see why it fails.

A text is stored when it is new, and again after a minute: an emptied Redis gets it again. It holds a kind, a status and
words of a list (`secret.plain_words`), never a body. `error_behind` finds the one that explains an incident.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from enum import StrEnum
from time import monotonic
from typing import Final

import msgspec
from redis.asyncio import Redis
from redis.exceptions import RedisError

from callkeeper.calls.causes import IncidentKind
from callkeeper.calls.claimed_item import instant
from callkeeper.calls.store.breakers import ACCOUNT, EndpointKind
from callkeeper.calls.store.in_bytes import in_bytes
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.stored_value import readable
from callkeeper.service.errors import CertificateRefused, ResellerError
from callkeeper.service.network_failure import CertificateFault

AGAIN_S: Final = 60.0
"""After this many seconds a process stores an unchanged text again."""

LASTS: Final = timedelta(minutes=20)
"""An error explains nothing any more after this time. A refused login is repeated every quarter of an hour at least."""

KEPT_S: Final = 3600
_LONGEST: Final = 240
_MOST: Final = 2000
"""How many errors a process remembers to have stored."""


class ErrorArea(StrEnum):
    """What was asked: the service by kind of request, or another server."""

    CALLS = EndpointKind.CALLS.value
    QUEUE = EndpointKind.QUEUE.value
    CHECK = EndpointKind.CHECK.value
    STANDING = "standing"
    LOGIN = "login"
    OUTCOMES = "outcomes"
    ARCHIVE = "archive"
    PROVIDER = "provider"
    """The identity provider."""


ANSWERED: Final = "the receiver answered"
"""How the words begin if the receiver of outcomes answered a post, and did not take it. Otherwise there was no answer."""


FOREIGN: Final = "FOREIGN_ANSWER"
"""The fault if something between us and the service answered in its place."""

FAILS: Final = 500
"""From this status on, something in front of the service most likely says that the service fails."""


class LastError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last error of an area: its words, when it came, and the first one of the same trouble.

    ``fault``: what is wrong with the certificate, if that was it; `FOREIGN` if something else answered.
    """

    words: str
    first_at: datetime
    at: datetime
    fault: str = ""


Errors = Mapping[tuple[str, str], LastError]
"""Errors by area and institution (`ACCOUNT`: of none)."""


class ErrorNotes:
    """Stores the errors of one process."""

    def __init__(
        self,
        redis: Redis,
        keys: Keys,
        *,
        now: Callable[[], int | str] = lambda: "",
        monotonic: Callable[[], float] = monotonic,
    ) -> None:
        """Set up. ``now`` replaces Redis's clock (milliseconds), ``monotonic`` this process's own (seconds)."""
        self._redis = in_bytes(redis)
        self._key = keys.errors
        self._now = now
        self._monotonic = monotonic
        self._noted: dict[str, tuple[str, float]] = {}

    async def note(self, area: ErrorArea, institution_key: str, words: str, *, fault: str = "") -> None:
        """Store an error, unless this process has stored the same text within the last minute.

        It is lost if Redis is away. The next one is stored.
        """
        field, words = f"{area} {institution_key}", " ".join(words.split())[:_LONGEST]
        known = self._noted.get(field)
        if known is not None and known[0] == words and self._monotonic() - known[1] < AGAIN_S:
            return
        if len(self._noted) >= _MOST:
            self._noted.clear()
        with suppress(RedisError, OSError):
            await self._store(field, words, fault)
            self._noted[field] = words, self._monotonic()

    async def clear(self, area: ErrorArea, institution_key: str) -> None:
        """Forget an error that this process has stored, because there was an answer."""
        field = f"{area} {institution_key}"
        if self._noted.pop(field, None) is not None:
            with suppress(RedisError, OSError):
                await self._redis.hdel(self._key, field)

    async def note_error(self, area: ErrorArea, institution_key: str, error: ResellerError) -> None:
        """Store an error of the service, or what kept a request from being sent."""
        cause = error.__cause__
        behind = cause if isinstance(cause, ResellerError) else error
        fault = behind.fault.name if isinstance(behind, CertificateRefused) else ""
        if behind.foreign is not None and behind.foreign.status < FAILS:
            fault = FOREIGN
        await self.note(area, institution_key, behind.brief, fault=fault)

    async def _store(self, field: str, words: str, fault: str) -> None:
        pipe = self._redis.pipeline(transaction=False)
        time, stored = await pipe.time().hget(self._key, field).execute()
        now_ms = self._now()
        at = instant(time[0] * 1000 + time[1] / 1000 if isinstance(now_ms, str) else now_ms)
        before = readable(stored, LastError)
        first_at = before.first_at if before is not None and timedelta() <= at - before.at <= LASTS else at
        error = LastError(words=words, first_at=first_at, at=at, fault=fault)
        pipe = self._redis.pipeline(transaction=True)
        await pipe.hset(self._key, field, msgspec.json.encode(error)).expire(self._key, KEPT_S).execute()


def parse_errors(stored: Iterable[Mapping[bytes, bytes]], now: datetime) -> dict[tuple[str, str], LastError]:
    """Return the errors that are not too old, and not from long before the clock was set back."""
    found = {}
    for field, value in (pair for each in stored for pair in each.items()):
        area, _, institution_key = field.decode(errors="replace").partition(" ")
        error = readable(value, LastError)
        if error is not None and abs(now - error.at) <= LASTS:
            found[area, institution_key] = error
    return found


_SERVICE: Final = (ErrorArea.CALLS, ErrorArea.QUEUE, ErrorArea.LOGIN)
_AREAS: Final[Mapping[IncidentKind, tuple[ErrorArea, ...]]] = {
    IncidentKind.LOGIN_REFUSED: (ErrorArea.LOGIN,),
    IncidentKind.SERVICE_AWAY: _SERVICE,
    IncidentKind.RATE_LIMITED: (ErrorArea.CALLS, ErrorArea.QUEUE),
    IncidentKind.INSTITUTION_FAILS: (ErrorArea.CALLS, ErrorArea.CHECK, ErrorArea.QUEUE, ErrorArea.STANDING),
    IncidentKind.RECEIVER_AWAY: (ErrorArea.OUTCOMES,),
    IncidentKind.ARCHIVE_AWAY: (ErrorArea.ARCHIVE,),
    IncidentKind.REQUESTS_FAIL: (*_SERVICE, ErrorArea.CHECK),
    IncidentKind.NO_RESULTS: (ErrorArea.CHECK,),
}
"""Which errors explain an incident, by its kind."""


def error_behind(kind: IncidentKind, institution_key: str, errors: Errors) -> LastError | None:
    """Return the last error that explains an incident of a kind: of its institution, or of any if it is about all."""
    areas = _AREAS.get(kind, ())
    behind = [
        error
        for (area, key), error in errors.items()
        if area in areas and (institution_key == ACCOUNT or key in {institution_key, ACCOUNT})
    ]
    return max(behind, key=lambda error: error.at, default=None)


def first_refusal(error: LastError | None, answered_at: datetime | None, last_at: datetime) -> datetime:
    """Return when a trouble began: with the first refusal after the last answer.

    ``error`` is the last error, ``answered_at`` when the last answer came, ``last_at`` the last refusal.
    """
    if error is None:
        return last_at
    first_at = error.first_at if answered_at is None else max(error.first_at, answered_at)
    return min(first_at, last_at)


_CERTIFICATE: Final = {
    CertificateFault.EXPIRED: "Its operator has to renew it.",
    CertificateFault.TOO_NEW: "Is the clock of this machine right? If it is, its operator has to correct the certificate.",
    CertificateFault.UNKNOWN_AUTHORITY: (
        "Is the host in CALLKEEPER_SERVICE_URL the service's own, with no proxy before it? If it is, its operator has to "
        "use a certificate, with its whole chain, of a public authority. If your own proxy inspects TLS, or the authority "
        "is a private one, name it in CALLKEEPER_CA."
    ),
    CertificateFault.OTHER_HOST: (
        "Compare the host in CALLKEEPER_SERVICE_URL with the one that the service's operator named. If it is right, the "
        "operator has to add it to the certificate."
    ),
    CertificateFault.OTHER: "Its operator has to correct it.",
}


_IN_ITS_PLACE: Final = (
    "Look at the outgoing proxy, the firewall and CALLKEEPER_SERVICE_URL of the workers' hosts: a portal or a proxy's login "
    "may stand there. If they are right, ask the service's operator whether a gateway of theirs answers. Calls are not "
    "handled until then; more workers do not help."
)


def fault_words(fault: str) -> tuple[str, str] | None:
    """Return title and remedy of a fault that has its own: a certificate that is not accepted, or a foreign answer."""
    if fault == FOREIGN:
        return "Something between us and the service answers", _IN_ITS_PLACE
    known = CertificateFault.__members__.get(fault)
    if known is None:
        return None
    remedy = f"{_CERTIFICATE[known]} No request and no password is sent until then; more workers do not help."
    return f"The service's certificate {known}", remedy

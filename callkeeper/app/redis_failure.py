"""Why Redis does not do what it is asked, in words for people, and what to do about it."""

from typing import Final

from redis.asyncio.sentinel import MasterNotFoundError as AsyncMasterNotFoundError
from redis.exceptions import AuthenticationError, InvalidResponse, ResponseError
from redis.sentinel import MasterNotFoundError

from callkeeper.app.redis_location import RedisLocation
from callkeeper.calls.store.writable import REFUSALS, RefusalWords, refusal_in
from callkeeper.service.network_failure import CertificateFault, NetworkFailure, certificate_fault, network_failure

SINGLE_REMEDY: Final = "REDIS_URL must lead to a single Redis, or to sentinels (redis+sentinel://)"

_DATABASE: Final = RefusalWords("has no such database", "Correct the number at the end of REDIS_URL.")
_NO_SENTINEL: Final = RefusalWords("is no sentinel", "Correct the sentinels in REDIS_URL; a server itself is redis://.")
_SAID: Final = {
    "DB index": _DATABASE,  # the server's words
    "Invalid Database": _DATABASE,  # those of redis-py
    "loading the dataset": RefusalWords("is still loading its data", "Wait until it has."),
    "max number of clients": RefusalWords("takes no more clients", "Raise its maxclients, or close other clients."),
    "'SENTINEL'": _NO_SENTINEL,
    "`SENTINEL`": _NO_SENTINEL,  # Redis before 7
    "unknown command": RefusalWords("lacks a command: it is a sentinel, or not supported", f"{SINGLE_REMEDY}."),
}
_ADVICE: Final = {
    NetworkFailure.NAME: "Correct the host in REDIS_URL.",
    NetworkFailure.REFUSED: "Start it, or correct host and port in REDIS_URL.",
    NetworkFailure.NO_FILE: "Start it, or correct the path in REDIS_URL.",
}
_CERTIFICATE: Final = {
    CertificateFault.EXPIRED: "Renew the server's certificate.",
    CertificateFault.TOO_NEW: "Is the clock of this machine right? If it is, correct the server's certificate.",
    CertificateFault.UNKNOWN_AUTHORITY: (
        "Name the authority in CALLKEEPER_CA; CALLKEEPER_REDIS_TLS=unverified only where there is none."
    ),
    CertificateFault.OTHER_HOST: "Correct the host in REDIS_URL, or have it added to the server's certificate.",
    CertificateFault.OTHER: "Correct the server's certificate.",
}


def redis_failure(place: RedisLocation, error: Exception) -> RefusalWords:
    """Return what is wrong with Redis, in words that follow its address, and what to do."""
    if isinstance(error, AuthenticationError):
        return RefusalWords("refuses the login", "Correct user and password in REDIS_URL.")
    if isinstance(error, InvalidResponse):
        return RefusalWords("is no Redis: something else answers", "Correct host and port in REDIS_URL.")
    if (said := next((words for text, words in _SAID.items() if text in str(error)), None)) is not None:
        return said
    if isinstance(error, ResponseError):
        words = REFUSALS[refusal_in(error)]
        return RefusalWords(f"refuses: {words.what}", words.advice)
    if place.sentinels is not None and isinstance(error, MasterNotFoundError | AsyncMasterNotFoundError):
        return RefusalWords(
            "does not answer: no sentinel names its master",
            f"Start it; or correct the sentinels, their login or the master's name ({place.sentinels.master}) in "
            "REDIS_URL.",
        )
    why = network_failure(error)
    return RefusalWords(f"does not answer: {why}", _advice(place, error, why))


def _advice(place: RedisLocation, error: Exception, why: str) -> str:
    if (fault := certificate_fault(error)) is not None:
        return _CERTIFICATE[fault]
    scheme = "rediss:// is for a port with TLS" if place.uses_tls else "redis:// is for a port without TLS"
    return next((words for kind, words in _ADVICE.items() if kind == why), f"Start it, or correct REDIS_URL: {scheme}.")

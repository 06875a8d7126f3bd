"""Why a server gave no whole answer, in words of a closed list for people.

The text of an error is never shown, because it may hold an address, a token or an answer. Libraries are known by the
names of their errors, because this module imports none.
"""

import errno
import re
import socket
import ssl
from collections.abc import Iterator
from enum import StrEnum
from typing import Final


class NetworkFailure(StrEnum):
    """Why there is no whole answer. The words follow "no whole answer:" and "does not answer:"."""

    NAME = "name not found"
    REFUSED = "connection refused"
    NO_ROUTE = "no route to it"
    TIMED_OUT = "timed out"
    CLOSED = "connection closed"
    NO_TLS = "no TLS on this port"
    TLS = "TLS failed"
    NOT_HTTP = "not valid HTTP"
    PROXY_REFUSED = "refused by the outgoing proxy"
    PROXY_AWAY = "no connection to the outgoing proxy"
    NO_FILE = "no such file"
    FORBIDDEN = "not permitted on this machine"
    OTHER = "connection broken"


class CertificateFault(StrEnum):
    """Why a TLS certificate does not verify, in words that follow "the certificate"."""

    EXPIRED = "has expired"
    TOO_NEW = "is not valid yet"
    UNKNOWN_AUTHORITY = "is of an unknown authority"
    OTHER_HOST = "is for another host"
    OTHER = "does not verify"


_CERTIFICATE_FAULTS: Final = {
    9: CertificateFault.TOO_NEW,
    10: CertificateFault.EXPIRED,
    **dict.fromkeys((2, 18, 19, 20, 21), CertificateFault.UNKNOWN_AUTHORITY),
    **dict.fromkeys((62, 64), CertificateFault.OTHER_HOST),
}
"""The codes of OpenSSL (``X509_V_ERR_...``) that a person can do something about."""

_KINDS: Final = (
    (socket.gaierror, NetworkFailure.NAME),
    (ConnectionRefusedError, NetworkFailure.REFUSED),
    (TimeoutError, NetworkFailure.TIMED_OUT),
    ((ConnectionError, EOFError, ssl.SSLEOFError, ssl.SSLZeroReturnError), NetworkFailure.CLOSED),
    (FileNotFoundError, NetworkFailure.NO_FILE),
    (PermissionError, NetworkFailure.FORBIDDEN),
)
_NAMES: Final = {
    "ClientHttpProxyError": NetworkFailure.PROXY_REFUSED,  # of aiohttp, as the next four
    "ClientProxyConnectionError": NetworkFailure.PROXY_AWAY,
    "ServerDisconnectedError": NetworkFailure.CLOSED,
    "ClientPayloadError": NetworkFailure.CLOSED,
    "HttpProcessingError": NetworkFailure.NOT_HTTP,
    "ProxyError": NetworkFailure.PROXY_REFUSED,  # of httpx
    "RemoteProtocolError": NetworkFailure.CLOSED,
    "BadStatusLine": NetworkFailure.NOT_HTTP,  # of http.client
    "IncompleteRead": NetworkFailure.CLOSED,  # of http.client and urllib3
    "SMTPServerDisconnected": NetworkFailure.CLOSED,
}
_NO_ROUTE: Final = {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN, errno.EADDRNOTAVAIL}
_NO_TLS: Final = {"WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"}
"""What OpenSSL says when the answer to its greeting is not TLS."""

_CODE: Final = re.compile(r"\[Errno (-?\d+)\]")
_LONGEST: Final = 20


def certificate_fault(error: BaseException) -> CertificateFault | None:
    """Return what is wrong with the server's certificate; None if it is not about a certificate."""
    refusals = [link for link in _chain(error) if isinstance(link, ssl.SSLCertVerificationError)]
    codes = (getattr(link, "verify_code", 0) for link in refusals)  # aiohttp's own error has none
    known = (_CERTIFICATE_FAULTS[code] for code in codes if code in _CERTIFICATE_FAULTS)
    return next(known, CertificateFault.OTHER) if refusals else None


def network_failure(error: BaseException) -> str:
    """Return why there was no whole answer: a `NetworkFailure`, or what is wrong with the certificate."""
    if (fault := certificate_fault(error)) is not None:
        return f"the certificate {fault}"
    return next((found for link in _chain(error) if (found := _failure(link))), NetworkFailure.OTHER)


def _failure(link: BaseException) -> NetworkFailure | None:
    found = next((failure for kind, failure in _KINDS if isinstance(link, kind)), None)
    found = found or next((_NAMES[kind.__name__] for kind in type(link).__mro__ if kind.__name__ in _NAMES), None)
    if found is not None or not isinstance(link, OSError):
        return found
    if isinstance(link, ssl.SSLError):
        reason = getattr(link, "reason", None)  # aiohttp's own error has none; its cause has
        return reason and (NetworkFailure.NO_TLS if reason in _NO_TLS else NetworkFailure.TLS)
    if link.errno in _NO_ROUTE:
        return NetworkFailure.NO_ROUTE
    # Several addresses were tried: asyncio puts their errors into one text.
    code = _CODE.search(str(link)) if link.errno is None else None
    return _failure(OSError(int(code[1]), "")) if code else None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    for _ in range(_LONGEST):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__

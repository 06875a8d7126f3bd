"""Why a server gave no whole answer, in words for people."""

import asyncio
import errno
import http.client
import socket
import ssl

import pytest

from callkeeper.service.network_failure import NetworkFailure, network_failure


def caused(outer: Exception, inner: BaseException) -> Exception:
    """Return an error that another one caused."""
    outer.__cause__ = inner
    return outer


def tls(reason: str, kind: type[ssl.SSLError] = ssl.SSLError) -> ssl.SSLError:
    """Return an error as OpenSSL makes it."""
    error = kind(1, f"[SSL: {reason}] canary.example")
    error.reason = reason
    return error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (socket.gaierror(-2, "canary.example"), NetworkFailure.NAME),
        (ConnectionRefusedError(), NetworkFailure.REFUSED),
        (OSError(errno.EHOSTUNREACH, "canary.example"), NetworkFailure.NO_ROUTE),
        (OSError("Multiple exceptions: [Errno 111] canary.example, [Errno 101] x"), NetworkFailure.REFUSED),
        (OSError("Multiple exceptions: [Errno 101] canary.example, [Errno 111] x"), NetworkFailure.NO_ROUTE),
        (TimeoutError("canary.example"), NetworkFailure.TIMED_OUT),
        (OSError(errno.ETIMEDOUT, "canary.example"), NetworkFailure.TIMED_OUT),
        (ConnectionResetError("canary.example"), NetworkFailure.CLOSED),
        (asyncio.IncompleteReadError(b"canary.example", 99), NetworkFailure.CLOSED),
        (tls("UNEXPECTED_EOF_WHILE_READING", ssl.SSLEOFError), NetworkFailure.CLOSED),
        (http.client.RemoteDisconnected("canary.example"), NetworkFailure.CLOSED),
        (http.client.BadStatusLine("canary.example"), NetworkFailure.NOT_HTTP),
        (tls("WRONG_VERSION_NUMBER"), NetworkFailure.NO_TLS),
        (tls("TLSV13_ALERT_CERTIFICATE_REQUIRED"), NetworkFailure.TLS),
        (ssl.SSLCertVerificationError("canary.example"), "the certificate does not verify"),
        (FileNotFoundError(2, "canary.example"), NetworkFailure.NO_FILE),
        (PermissionError(13, "canary.example"), NetworkFailure.FORBIDDEN),
        (ValueError("canary.example [Errno 111]"), NetworkFailure.OTHER),
    ],
    ids=str,
)
def test_network_failure_has_words_of_a_closed_list(error: Exception, words: str) -> None:
    """What went wrong is named, also behind other errors, and nothing of an error's own text is shown."""
    outer = caused(RuntimeError("canary"), caused(OSError("All connection attempts failed: canary"), error))
    assert [network_failure(each) for each in (error, outer)] == [words, words]


def test_network_failure_ends_with_a_chain_that_does_not() -> None:
    """A library can make a chain of errors a circle."""
    first, second = RuntimeError(), RuntimeError()
    caused(first, caused(second, first))
    assert network_failure(first) == NetworkFailure.OTHER

"""Authenticates pushes: the sender must send every configured header with exactly the configured value.

While a secret is rotated there are two sets of headers: the current one and the previous one.
"""

import hmac
from collections.abc import Sequence
from typing import Literal

from callkeeper.service.push_event import Headers

Sender = Literal["current", "previous"]
"""The set of headers that a sender has sent."""


class PushAuthentication:
    """Recognises senders by their headers, compared as bytes and in constant time."""

    def __init__(self, current: Headers, previous: Headers | None = None) -> None:
        """Set up.

        Raises:
            ValueError: A set is empty, so everybody would be let in.
        """
        sets: tuple[tuple[Sender, Headers | None], ...] = (("current", current), ("previous", previous))
        self._accepted = [(sender, _expected(known)) for sender, known in sets if known is not None]

    def recognise(self, received: Sequence[tuple[bytes, bytes]]) -> Sender | None:
        """Return which set the headers match, or None.

        Args:
            received: Lower-case names and values, as in ASGI. A name that occurs twice never matches.
        """
        matches = [sender for sender, expected in self._accepted if _all_match(expected, received)]
        return matches[0] if matches else None


def _expected(known: Headers) -> Sequence[tuple[bytes, bytes]]:
    if not known:
        raise ValueError("no headers are configured, so everybody would be let in")
    return [(name.encode("ascii"), value.reveal().encode("ascii")) for name, value in known]


def _all_match(expected: Sequence[tuple[bytes, bytes]], received: Sequence[tuple[bytes, bytes]]) -> bool:
    """Compare every header before deciding, so that the time does not show which one is wrong."""
    verdicts = [hmac.compare_digest(_only(name, received), value) for name, value in expected]
    return all(verdicts)


def _only(wanted: bytes, received: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return a header's single value, or empty bytes, which match nothing because no configured value is empty."""
    values = [value for name, value in received if name == wanted]
    return values[0] if len(values) == 1 else b""

"""The request headers that the dashboard is told to send with every push, in the dashboard's own notation.

    Header: value; Header2: value2

They carry our authentication of the sender. A value can hold no ``;``, which separates; no name or value
is ever repeated in an error, since a mistyped setting may show a secret where a name should be.

Spec: Events (custom request headers).
"""

import re
from typing import Final

from reseller.secret import Secret

Headers = tuple[tuple[str, Secret], ...]
"""Lower-case names with their values."""

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(r"[!-~](?:[ \t]*[!-~])*")
_TRANSPORT_OWNED: Final = frozenset(
    {
        "host",
        "content-length",
        "content-type",
        "transfer-encoding",
        "connection",
        "keep-alive",
        "upgrade",
        "te",
        "trailer",
        "expect",
    }
)


class HeaderSettingsUnreadable(ValueError):
    """The setting does not follow ``Header: value; Header2: value2``; says which pair and why."""


def parse_header_settings(text: str) -> Headers:
    """Read the dashboard's notation into (lower-case name, value) pairs, in order.

    A ``;`` after the last pair is accepted.

    Raises:
        HeaderSettingsUnreadable: No pair, a malformed one, or a name that occurs twice or is the transport's.

    Spec: Events. Assumed: a value may hold any visible ASCII character but ``;``, and inner blanks.
    """
    pairs = text.strip().removesuffix(";").split(";")
    headers = tuple(_parse_pair(number, pair) for number, pair in enumerate(pairs, start=1))
    if len({name for name, _ in headers}) != len(headers):
        raise HeaderSettingsUnreadable("a header name occurs twice")
    return headers


def _parse_pair(number: int, pair: str) -> tuple[str, Secret]:
    name, colon, value = pair.partition(":")
    name, value = name.strip().lower(), value.strip()
    if not colon:
        raise HeaderSettingsUnreadable(f"pair {number} has no colon")
    if not _TOKEN.fullmatch(name):
        raise HeaderSettingsUnreadable(f"pair {number}: not a legal header name")
    if name in _TRANSPORT_OWNED:
        raise HeaderSettingsUnreadable(f"pair {number}: the transport sets this header itself")
    if not _VALUE.fullmatch(value):
        raise HeaderSettingsUnreadable(f"pair {number}: the value must be visible ASCII characters")
    return name, Secret(value)

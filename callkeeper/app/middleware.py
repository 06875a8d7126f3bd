"""ASGI middleware of the web process: it refuses ambiguous paths and finds the client's address."""

import re
from collections.abc import Awaitable
from functools import lru_cache
from ipaddress import ip_address
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from callkeeper.desk.problems import Problem

MAX_TARGET: Final = 8 * 1024
"""Bytes of a path and its query."""

_PLAIN: Final = re.compile(rb"/(?!\.{1,2}(?:/|\Z))[A-Za-z0-9._-]*(?:\Z|/)")
_SEPARATOR: Final = re.compile(rb"/|\\|%2f|%5c", re.IGNORECASE)
"""All separators that some software recognises: nginx reads ``/desk/x%2f..%2f..%2fpush`` as ``/push``."""
_DOTS: Final = re.compile(rb"(?:\.|%2e){1,2}", re.IGNORECASE)


class PlainPath:
    """Answers 404 to a path that a router in front could read differently.

    A router decides by the raw path, an application by the decoded one: ``/%72q/`` or ``//rq/`` could evade a rule for
    ``/rq/``. So the first segment of a path must not be percent-encoded, and no segment may be empty or a relative
    folder in any encoding.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Pass on a request with a plain path."""
        is_refused = scope["type"] == "http" and not is_plain(scope.get("raw_path") or b"", scope["query_string"])
        app = Problem(404, "not_found").response() if is_refused else self._app
        return app(scope, receive, send)


@lru_cache(maxsize=64)
def is_plain(raw_path: bytes, query: bytes = b"") -> bool:
    """Tell whether a raw path can be read in one way only."""
    raw_path = raw_path.partition(b"?")[0]
    return (
        len(raw_path) + len(query) <= MAX_TARGET
        and _PLAIN.match(raw_path) is not None
        and b"//" not in raw_path
        and not any(map(_DOTS.fullmatch, _SEPARATOR.split(raw_path)))
    )


_HEADER: Final = b"x-forwarded-for"


class Forwarded:
    """Replaces the nearest router's address by the client's, as our outermost router saw it.

    Every router appends the address of its peer to ``X-Forwarded-For``. The client may have written all entries before
    those of our routers, so the number of our routers is a setting. Without it the header is ignored.
    """

    def __init__(self, app: ASGIApp, hops: int) -> None:
        """``hops``: routers of ours between the client and this process; with 0 the header is ignored."""
        self._app = app
        self._hops = hops

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Pass a request on, with the address that our outermost router has written."""
        if self._hops and scope["type"] == "http" and (address := self._address(scope)):
            scope = {**scope, "client": (address, 0)}
        return self._app(scope, receive, send)

    def _address(self, scope: Scope) -> str | None:
        """Return the address that our outermost router appended, or None if there are fewer entries than routers."""
        lines = [value for name, value in scope["headers"] if name == _HEADER]
        entries = b",".join(lines).decode("latin-1").split(",")
        return _address_in(entries[-self._hops].strip()) if len(entries) >= self._hops else None


def _address_in(entry: str) -> str | None:
    """Return the address in an entry such as ``192.0.2.1``, ``192.0.2.1:443``, ``2001:db8::1`` or ``[2001:db8::1]:443``."""
    if entry.startswith("["):
        entry = entry[1:].partition("]")[0]
    elif entry.count(":") == 1:
        entry = entry.partition(":")[0]
    try:
        return str(ip_address(entry))
    except ValueError:
        return None

"""Refuses addresses that two readers could read differently, before anything is chosen by them.

A router in front decides by the path as it was sent, an application by the path as it is decoded: ``/%72q/`` or ``//rq/``
could get past a rule for ``/rq/``. So the first part of a path has to be spelled plainly, and no part may be empty or a
relative folder, however it is spelled and separated.
"""

import re
from functools import lru_cache
from typing import Final

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

MAX_TARGET: Final = 8 * 1024
"""Bytes of a path and its query."""

_PLAIN: Final = re.compile(rb"/(?!\.{1,2}(?:/|\Z))[A-Za-z0-9._-]*(?:\Z|/)")
_SEPARATOR: Final = re.compile(rb"/|\\|%2f|%5c", re.IGNORECASE)
"""Whatever separates parts for one reader or another: nginx takes ``/desk/x%2f..%2f..%2fpush`` for ``/push``."""
_DOTS: Final = re.compile(rb"(?:\.|%2e){1,2}", re.IGNORECASE)


class PlainPath:
    """Answers 404 to whatever is not plainly one address."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a request with a plain path."""
        if scope["type"] == "http" and not is_plain(scope.get("raw_path") or b"", scope["query_string"]):
            await PlainTextResponse("Not found.\n", 404)(scope, receive, send)
            return
        await self._app(scope, receive, send)


@lru_cache(maxsize=64)
def is_plain(raw_path: bytes, query: bytes = b"") -> bool:
    """Tell whether a path as it was sent can be read in one way only."""
    raw_path = raw_path.partition(b"?")[0]
    return (
        len(raw_path) + len(query) <= MAX_TARGET
        and _PLAIN.match(raw_path) is not None
        and b"//" not in raw_path
        and not any(map(_DOTS.fullmatch, _SEPARATOR.split(raw_path)))
    )

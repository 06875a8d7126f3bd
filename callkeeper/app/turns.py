"""Turns of requests: how many of each class a web process answers at the same time.

One event loop serves everything. An event must not wait for hundreds of pages that were asked for at the same moment.
"""

import asyncio
import resource
from collections import deque
from enum import StrEnum
from typing import Final

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from callkeeper.app.http_protocol import STREAMS

MAX_CONNECTIONS: Final = 4096
"""Connections of the process. One costs 10 KB when it is idle and 150 KB at most."""

RESERVED_FILES: Final = 128
"""Files and sockets that the process needs apart from its clients."""

RETRY_AFTER_S: Final = 5

MOST_AWAITED: Final = 64 * 1024
"""Bytes of a body that are awaited before a request takes room. No page reads more, so a longer one is refused soon."""


class Class(StrEnum):
    """Who asks, as far as a request's head shows. Events and health checks have no class: they never wait."""

    STREAM = "stream"
    """Waits for changes most of the time. Counts by person and token (`callkeeper.desk.quotas`)."""
    DESK = "desk"
    """With a credential to the desk."""
    WAITING = "waiting"
    """So, and waits for an outcome (``?wait``), up to ten seconds each: these hold no place of other desk requests."""
    PERSON = "person"
    """With a credential to a page."""
    STRANGER = "stranger"
    """Without one, or for a login."""


PLACES: Final = {Class.DESK: 64, Class.WAITING: 256, Class.PERSON: 32, Class.STRANGER: 4}
"""Requests that are answered at the same time."""

_CREDENTIALS: Final = frozenset({b"authorization", b"cookie"})
_EVENTS: Final = frozenset({b"/push", b"/healthz", b"/readyz"})


class Turns:
    """Lets requests wait for a place of their class, and refuses them when three quarters of all connections wait.

    A request takes room when it has arrived completely: otherwise one client could keep everybody out by half-sent
    requests. Their connections have a deadline, and are cut to make room.
    """

    def __init__(self, app: ASGIApp, most: int) -> None:
        """``most``: how many requests may wait or be answered, without events."""
        self._app = app
        self._most = most
        self._busy = 0
        self._places = {each: asyncio.Semaphore(places) for each, places in PLACES.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on in its turn."""
        if scope["type"] != "http" or scope["raw_path"] in _EVENTS:
            await self._app(scope, receive, send)
            return
        receive = await _arrived(receive)
        if self._busy >= self._most:
            headers = {"Retry-After": str(RETRY_AFTER_S), "Connection": "close"}
            await PlainTextResponse("Too many requests at once.\n", 503, headers)(scope, receive, send)
            return
        self._busy += 1
        try:
            kind = class_of(scope)
            if kind is Class.STREAM:
                await self._app(scope, receive, send)
            else:
                async with self._places[kind]:
                    await self._app(scope, receive, send)
        finally:
            self._busy -= 1


def class_of(scope: Scope) -> Class:
    """Return the class of a request that is no event."""
    path: str = scope["path"]
    has_credential = any(name in _CREDENTIALS for name, _ in scope["headers"]) or b"ticket=" in scope["query_string"]
    if path.startswith("/login") or not has_credential:
        return Class.STRANGER
    if path.endswith(STREAMS):
        return Class.STREAM
    if not path.startswith("/desk"):
        return Class.PERSON
    is_waiting = any(each.startswith(b"wait=") for each in scope["query_string"].split(b"&"))
    return Class.WAITING if is_waiting else Class.DESK


async def _arrived(receive: Receive) -> Receive:
    """Wait until a request has arrived, or more of its body than anything reads; return a ``receive`` that repeats it."""
    messages: deque[Message] = deque()
    awaited = MOST_AWAITED
    while awaited >= 0:
        message = await receive()
        messages.append(message)
        if not message.get("more_body", False):  # it has arrived, or the client has left
            break
        awaited -= len(message["body"])

    async def repeated() -> Message:
        return messages.popleft() if messages else await receive()

    return repeated


def room_for_connections() -> int:
    """Return how many connections this process may hold: the limit, or as many as it may open files."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(MAX_CONNECTIONS, max(16, files - RESERVED_FILES))


def room_for_others() -> int:
    """Return how many of them may be busy with anything but events and health checks."""
    return room_for_connections() * 3 // 4

"""Limits on a web process's connections: how many there may be, and how long each may stay in a state.

uvicorn's ``limit_concurrency`` answers 503 to every new client, so many slow senders would block the real one. This
limit cuts the slowest instead: with 500 connections at a byte a second, pushes took 1.35 times as long at p99
(*measured*).

A connection can be in several of these states. Each state lists its connections in the order in which they entered it,
the oldest first.

=============  ================================================  =======================  ===========================
state          the connection                                    is cut after             is cut to make room
=============  ================================================  =======================  ===========================
not reading    does not take what was written to it              ``read_s``               first, after a second
receiving      is new, or has sent a part of a request           ``request_s``            second, after a second
waiting        has sent more than is parsed                      ``answer_s``             third; then the receiving
idle           has been answered and sends nothing               uvicorn's keep-alive     last
answering      waits for answers that are no streams             ``answer_s``             never
=============  ================================================  =======================  ===========================
"""

import resource
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_CONNECTIONS: Final = 4096
"""Connections of the process. One costs 10 KB when it is idle and 150 KB at most."""

RESERVED_FILES: Final = 128
"""Files and sockets that the process needs apart from its clients."""

KEEP_ALIVE_S: Final = 100
"""Longer than routers (Heroku's: 90 s) and clients keep idle connections. If we closed first, an event sent at that
moment would be lost, because it is sent only once."""

STUCK_S: Final = 1.0
"""How long a client must have read nothing, or not have completed a request, before it is cut to make room. A shorter
time would cut clients whose answer is still on its way, and new clients that had no time to send."""

RETRY_AFTER_S: Final = 5

MOST_AWAITED: Final = 64 * 1024
"""Bytes of a body that are awaited before a request takes room. No page reads more, so a longer one is refused soon."""


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How long a connection may take, in seconds; checked once a second."""

    request_s: float = 10.0
    """For a request to arrive completely, counted from the connection for the first one."""
    answer_s: float = 30.0
    """For all received requests to be answered and the answers to be read. Streams have no such deadline."""
    read_s: float = 30.0
    """For a client to read again after it stopped, also on a stream."""


class Connection(Protocol):
    """A connection that can be cut."""

    def cut(self) -> None:
        """End it at once, and call `ConnectionLimit.forget`."""


class ConnectionLimit:
    """Tracks the states of all connections, ends those that take too long, and makes room for new ones."""

    def __init__(
        self, most: int, deadlines: Deadlines | None = None, on_full: Callable[[], None] = lambda: None
    ) -> None:
        """Start with no connections."""
        self._most = most
        self._on_full = on_full
        self.not_reading: dict[Connection, float] = {}
        self.receiving: dict[Connection, float] = {}
        self.waiting: dict[Connection, float] = {}
        self.idle: dict[Connection, float] = {}
        self.answering: dict[Connection, float] = {}
        limits = Deadlines() if deadlines is None else deadlines
        self._deadlines = (
            (self.not_reading, limits.read_s),
            (self.receiving, limits.request_s),
            (self.answering, limits.answer_s),
            (self.waiting, limits.answer_s),
            # uvicorn closes idle connections, but a connection that is closed stays until the client has read all.
            (self.idle, KEEP_ALIVE_S + limits.read_s),
        )

    def enter(self, state: dict[Connection, float], connection: Connection, since: float | None = None) -> None:
        """Record since when a connection is in a state (by `time.monotonic`), unless it is in it already."""
        if connection not in state:
            state[connection] = time.monotonic() if since is None else since

    def forget(self, connection: Connection) -> None:
        for state, _ in self._deadlines:
            state.pop(connection, None)

    def admit(self, total: int) -> None:
        """Cut one connection if the new one, which is receiving already and counted, exceeds the limit."""
        if total <= self._most:
            return
        self._on_full()
        oldest = self._oldest(self.not_reading, STUCK_S) or self._oldest(self.receiving, STUCK_S)
        oldest = oldest or self._oldest(self.waiting)
        if oldest is None and len(self.receiving) > 1:  # the last of them is the new one
            oldest = self._oldest(self.receiving)
        oldest = oldest or self._oldest(self.idle) or self._oldest(self.receiving)
        if oldest is not None:
            oldest.cut()

    def _oldest(self, state: dict[Connection, float], at_least_s: float = 0.0) -> Connection | None:
        """Return the connection that entered a state first, if it has been there for long enough."""
        connection, since = next(iter(state.items()), (None, 0.0))
        return connection if time.monotonic() - since >= at_least_s else None

    def cut_overdue(self) -> None:
        """Cut the connections that have been in a state for too long."""
        now = time.monotonic()
        for state, within_s in self._deadlines:
            for connection in [one for one, since in state.items() if now - since > within_s]:
                connection.cut()


class ReservedConnections:
    """Keeps a quarter of the connections for events and health checks.

    A stream lasts for hours, and a connection that is being answered is never cut to make room. So requests of other
    kinds are answered with 503 when three quarters of all connections are busy with them. A request takes room when it
    has arrived completely: otherwise one client could keep everybody out by half-sent requests. Their connections have a
    deadline, and are cut to make room.
    """

    def __init__(self, app: ASGIApp, most: int, paths: frozenset[bytes]) -> None:
        """``paths`` are always passed on; at most ``most`` requests for others may be under way."""
        self._app = app
        self._most = most
        self._paths = paths
        self._busy = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on if there is room for it."""
        if scope["type"] != "http" or scope.get("raw_path") in self._paths:
            await self._app(scope, receive, send)
            return
        receive = await _arrived(receive)
        if self._busy >= self._most:
            headers = {"Retry-After": str(RETRY_AFTER_S), "Connection": "close"}
            await PlainTextResponse("Too many requests at once.\n", 503, headers)(scope, receive, send)
            return
        self._busy += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._busy -= 1


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

"""Every connection of a web process that nobody works for: those that a request is awaited from, and those that are idle.

When there are too many connections, room is made for the new one at the cost of whoever has kept us waiting longest. Under a
flood of slow senders these are the slow ones, and whoever sends in time gets through.
"""

import resource
from collections.abc import Callable
from typing import Final, Protocol

MAX_CONNECTIONS: Final = 4096
"""In all; a connection costs some 10 KB."""

RESERVED_FILES: Final = 128
"""Files and sockets that the process needs for other things than its clients."""


class Connection(Protocol):
    """A connection that can be cut."""

    def cut(self) -> None:
        """End it at once."""


class Crowd:
    """Who waits, in the order of how long."""

    def __init__(self, limit: int, on_full: Callable[[], None] = lambda: None) -> None:
        """Have nobody.

        Args:
            limit: Connections at most.
            on_full: Told when one had to be cut.
        """
        self._limit = limit
        self._on_full = on_full
        self._awaited: dict[Connection, None] = {}
        self._idle: dict[Connection, None] = {}

    def admit(self, total: int) -> None:
        """Make room if a new connection is one too many: cut who is awaited longest, else who is idle longest."""
        if total <= self._limit:
            return
        self._on_full()
        longest = next(iter(self._awaited), None)
        is_the_new_one = len(self._awaited) == 1
        if is_the_new_one and self._idle:
            longest = next(iter(self._idle))
        if longest is not None:
            longest.cut()

    def awaits(self, connection: Connection) -> None:
        """Note that a request of a connection is awaited, from now on."""
        self.forget(connection)
        self._awaited[connection] = None

    def is_idle(self, connection: Connection) -> None:
        """Note that a connection was answered and nothing is under way on it."""
        self.forget(connection)
        self._idle[connection] = None

    def forget(self, connection: Connection) -> None:
        """Note that a connection is being worked for, or gone."""
        self._awaited.pop(connection, None)
        self._idle.pop(connection, None)


def room_for_connections() -> int:
    """Return how many connections this process may hold: the limit, or as many as it may open files."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(MAX_CONNECTIONS, max(16, files - RESERVED_FILES))

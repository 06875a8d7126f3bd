"""The web process's server: uvicorn with our protocol and a limit on connections."""

import math
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import metadata
from types import FrameType
from typing import Any, Final, cast

from starlette.types import ASGIApp
from structlog.typing import FilteringBoundLogger
from uvicorn import Config, Server

from callkeeper.app.http_protocol import DEADLINES_S, KEEP_ALIVE_S, BoundedProtocol, ConnectionLimit, ConnectionState
from callkeeper.app.turns import room_for_connections

SHUTDOWN_S: Final = 8
"""How long requests under way may take to end; platforms kill after 10 s."""

SAY_EVERY_S: Final = 60.0
"""How often a reached connection limit is logged."""

SOCKET_BUFFER: Final = 16 * 1024
"""Socket buffer of a connection in each direction (Linux doubles it). It limits how much is read at once, and how much
memory a client that does not read can hold."""

_BACKLOG: Final = 2048


class WebServer(Server):
    """Serves one application on one socket until a signal; a second signal stops at once."""

    def __init__(
        self,
        app: ASGIApp,
        listener: socket.socket,
        log: FilteringBoundLogger,
        *,
        leave: Callable[[], None] = lambda: None,
        room: int | None = None,
        deadlines_s: Mapping[ConnectionState, float] = DEADLINES_S,
    ) -> None:
        """``leave`` ends streams, which would never end by themselves; ``room``: connections at most."""
        self._limit = ConnectionLimit(room_for_connections() if room is None else room, deadlines_s, self._on_full)
        super().__init__(
            Config(
                app,
                http=cast("Any", partial(BoundedProtocol, limit=self._limit)),
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=SHUTDOWN_S,
                callback_notify=self._cut_overdue,
                timeout_notify=0,  # once a second: uvicorn asks no more often
            )
        )
        self._listener = listener
        self._log = log
        self._leave = leave
        self._logged_full_at = -math.inf

    async def _cut_overdue(self) -> None:
        self._limit.cut_overdue()

    def _on_full(self) -> None:
        """Log that connections are cut to make room, once a minute."""
        now = time.monotonic()
        if now - self._logged_full_at > SAY_EVERY_S:
            self._logged_full_at = now
            self._log.warning("connection_limit_reached", connections=len(self.server_state.connections))

    def serve_until_stopped(self) -> bool:
        """Serve; return whether the application could be started."""
        self.run(sockets=[self._listener])
        return self.started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening, and log the address."""
        await super().startup(sockets)
        if self.started:
            self._log.info("web_listening", url=url_of(self._listener), release=metadata.version("callkeeper"))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close streams, finish requests in progress, and log when that is done."""
        self._leave()
        await super().shutdown(sockets)
        self._log.info("web_stopped")

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on SIGINT and SIGTERM, and end normally afterwards instead of by the signal."""
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Accept no more requests; at the second signal, abandon those under way."""
        self.force_exit = self.should_exit
        self.should_exit = True


def every_address() -> str:
    """Return what stands for every address of this machine: IPv6 and IPv4, if it has both."""
    return "::" if socket.has_dualstack_ipv6() else "0.0.0.0"  # noqa: S104  (for platforms, whose router connects)


def listen(host: str, port: int) -> socket.socket:
    """Open the socket; port 0 lets the system choose. ``::`` takes IPv4 as well.

    Raises:
        OSError: The address is not ours or in use.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio disables Nagle's algorithm only if the protocol is named. With it, every answer waits 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, host != "::")
    for buffer in (socket.SO_RCVBUF, socket.SO_SNDBUF):  # connections inherit them
        listener.setsockopt(socket.SOL_SOCKET, buffer, SOCKET_BUFFER)
    try:
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    listener.listen(_BACKLOG)
    return listener


def url_of(listener: socket.socket) -> str:
    """Return where a socket listens, as a URL."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

"""The client's address behind routers: the one that the outermost router of ours saw.

Every router appends the address that it took a request from to ``X-Forwarded-For``; whatever stands before the entries of
our own routers was written by the client. So the number of routers is a setting; without it the header means nothing.
"""

from ipaddress import ip_address
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

_HEADER: Final = b"x-forwarded-for"


class Forwarded:
    """Replaces the nearest router's address, which the server has written down, by the client's."""

    def __init__(self, app: ASGIApp, hops: int) -> None:
        """Wrap an application.

        Args:
            app: The application.
            hops: Routers of ours between the client and this process; with 0 the header is ignored.
        """
        self._app = app
        self._hops = hops

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, with the address that our outermost router has written."""
        if self._hops and scope["type"] == "http" and (address := self._address(scope)):
            scope = {**scope, "client": (address, 0)}
        await self._app(scope, receive, send)

    def _address(self, scope: Scope) -> str | None:
        """Return the address that our outermost router appended, None if there is none or fewer entries than routers."""
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

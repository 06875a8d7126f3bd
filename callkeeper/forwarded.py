"""Whose request it is when routers stand in front: the address that the outermost router of ours saw.

Every router appends the address that it took a request from to ``X-Forwarded-For``; what stands left of our own routers'
words is whatever the client claims. So the number of routers has to be told; without it the header means nothing.
"""

from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

_HEADER: Final = b"x-forwarded-for"


class Forwarded:
    """Puts the client's address where the server has put the nearest router's."""

    def __init__(self, app: ASGIApp, hops: int) -> None:
        """Stand in front of an application.

        Args:
            app: The application.
            hops: Routers of ours between the client and this process; 0: nobody is believed.
        """
        self._app = app
        self._hops = hops

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, with the address that our outermost router has written."""
        if self._hops and scope["type"] == "http" and (address := self._address(scope)):
            scope = {**scope, "client": (address, 0)}
        await self._app(scope, receive, send)

    def _address(self, scope: Scope) -> str | None:
        """Return the entry that our outermost router appended, None if there are fewer than there are routers."""
        lines = [value for name, value in scope["headers"] if name == _HEADER]
        entries = [entry.strip().decode("latin-1") for entry in b",".join(lines).split(b",")]
        return entries[-self._hops] if len(entries) >= self._hops and entries[-self._hops] else None

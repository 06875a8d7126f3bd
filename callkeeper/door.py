"""A door of its own for one address, before any router looks at it: events come by the thousand, all else now and then."""

from starlette.types import ASGIApp, Receive, Scope, Send


class Door:
    """Hands requests for one path to an application, and everything else on."""

    def __init__(self, app: ASGIApp, path: str, behind: ASGIApp) -> None:
        """Stand before an application, and after whatever makes sure that a path can be read in one way only.

        Args:
            app: What everything else is for.
            path: The address.
            behind: What answers there, whatever the method.
        """
        self._app = app
        self._path = path
        self._behind = behind

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        is_ours = scope["type"] == "http" and scope["path"] == self._path
        await (self._behind if is_ours else self._app)(scope, receive, send)

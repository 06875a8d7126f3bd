"""Security headers: in a browser an answer with data may do nothing, and a page only what it needs.

`SafeHeaders` stands in front of the whole web process, so every answer has them. An answer that
brings a header of the same name keeps its own; `callkeeper.desk.access` gives pages the policy of pages.
"""

from collections.abc import Collection, Mapping
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

STRICT: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
"""For pages of our own: files of this host and nothing else; no script or style within a page."""

NOTHING: Final = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
"""For answers that are data: a browser that shows one runs, loads and sends nothing."""

PAGE: Final[Mapping[str, str]] = {"Content-Security-Policy": STRICT}
"""The headers of a page, which is allowed more than data."""

EVERYWHERE: Final[Mapping[str, str]] = {
    "Content-Security-Policy": NOTHING,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Strict-Transport-Security": "max-age=31536000",
    "Cache-Control": "no-store",
}
"""The headers of every answer. Browsers obey Strict-Transport-Security over https only, so it can always be sent."""


class SafeHeaders:
    """Give every answer of an application the headers that it lacks."""

    def __init__(
        self, app: ASGIApp, headers: Mapping[str, str] = EVERYWHERE, *, machine_paths: Collection[bytes] = ()
    ) -> None:
        """Wrap an application.

        Args:
            app: The application.
            headers: What its answers carry.
            machine_paths: Raw paths that no browser asks for; their answers get no headers, because the server checks
                every header that it sends, which costs 1 microsecond each.
        """
        self._app = app
        self._machine_paths = frozenset(machine_paths)
        self._headers = [(name.lower().encode("ascii"), value.encode("ascii")) for name, value in headers.items()]
        self._names = frozenset(name for name, _ in self._headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; what is not HTTP, or not for browsers, passes untouched."""
        if scope["type"] != "http" or scope.get("raw_path") in self._machine_paths:
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = self._names.intersection([name.lower() for name, _ in message["headers"]])
                ours = [pair for pair in self._headers if pair[0] not in present] if present else self._headers
                message["headers"] = [*message["headers"], *ours]
            await send(message)

        await self._app(scope, receive, send_with_headers)

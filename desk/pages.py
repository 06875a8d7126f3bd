"""What every page of ours tells the browser: where it may load from, that nobody frames it, that nobody keeps it."""

from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.types import Message, Send

STRICT: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
"""For pages of our own: files of this host and nothing else; no script or style within a page."""

INLINE: Final = (
    "default-src 'self' 'unsafe-inline' 'unsafe-eval'; img-src 'self' data:; object-src 'none'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""For the RQ dashboard: inline scripts and eval are what it is made of; nothing from or to other hosts."""

_HEADERS: Final = {
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def with_page_headers(send: Send, policy: str) -> Send:
    """Return a ``send`` that adds the headers of a page under a content security policy."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.update({**_HEADERS, "Content-Security-Policy": policy})
            headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return send_with_headers

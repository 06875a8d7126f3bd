"""Lets the desk's addresses be told apart by the path as it was sent.

A voice id may hold a slash, quoted. Decoded first, ``/calls/cu-1/x%2Fwishes%2Fy`` would be another address than the one that
was asked for.
"""

from urllib.parse import quote, unquote

from starlette.convertors import Convertor, register_url_convertor
from starlette.types import ASGIApp, Receive, Scope, Send


class QuotedConvertor(Convertor[str]):
    """A parameter that is decoded after the address was chosen."""

    regex = ".+"

    def convert(self, value: str) -> str:
        """Decode what stands in the path."""
        return unquote(value)

    def to_string(self, value: str) -> str:
        """Quote a value as one part of a path."""
        return quote(value, safe="")


register_url_convertor("quoted", QuotedConvertor())


class RawPath:
    """Hands an application the path as it was sent."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] == "http" and scope.get("raw_path"):
            scope = {**scope, "path": scope["raw_path"].partition(b"?")[0].decode("latin-1")}
        await self._app(scope, receive, send)

"""Serves a page of another site to a real browser."""

from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from tests.http_servers import serving


@contextmanager
def foreign_page(body: str) -> Iterator[str]:
    """Serve a page at ``localhost`` and yield its address. Our processes, at ``127.0.0.1``, are another site."""
    with serving(lambda _: httpx.Response(200, html=body)) as port:
        yield f"http://localhost:{port}/"

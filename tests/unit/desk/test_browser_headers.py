"""What browsers are told."""

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from callkeeper.desk.browser_headers import EVERYWHERE, NOTHING, PAGE, STRICT, SafeHeaders


async def page(_request: Request) -> Response:
    """Answer as a page does."""
    return PlainTextResponse("a page", headers=PAGE)


async def data(_request: Request) -> Response:
    """Answer as an API does."""
    return PlainTextResponse("data", headers={"cache-control": "max-age=60"})


@pytest.fixture
def client() -> httpx.AsyncClient:
    """Return a client of an application that knows nothing of headers."""
    app = SafeHeaders(Starlette(routes=[Route("/page", page), Route("/data", data)]))
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://desk")


@pytest.mark.parametrize("path", ["/page", "/data", "/nothing"])
async def test_headers_are_on_every_answer(path: str, client: httpx.AsyncClient) -> None:
    """Every header, once each, on whatever is answered."""
    answer = await client.get(path)
    assert {name: len(answer.headers.get_list(name)) for name in EVERYWHERE} == dict.fromkeys(EVERYWHERE, 1)


async def test_headers_of_an_answer_are_its_own(client: httpx.AsyncClient) -> None:
    """Data may be run and framed by nobody; a page says by its own policy what it needs, and nobody overrules it."""
    assert (await client.get("/data")).headers["content-security-policy"] == NOTHING
    assert (await client.get("/data")).headers["cache-control"] == "max-age=60"
    assert (await client.get("/page")).headers["content-security-policy"] == STRICT


def test_page_policy_allows_nothing_inline_and_nothing_from_elsewhere() -> None:
    """A word of somebody else that gets into a page stays a word."""
    assert "unsafe" not in STRICT
    assert "http" not in STRICT
    assert "*" not in STRICT
    assert "frame-ancestors 'none'" in STRICT

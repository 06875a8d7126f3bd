"""Every answer of the web application has safe headers, and none repeats the Host header."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import structlog

from callkeeper.app.settings import WebSettings
from callkeeper.app.web_app import web_app
from callkeeper.desk.browser_headers import EVERYWHERE

ENVIRON = {
    "CALLKEEPER_PUSH_HEADERS": "X-Push-Key: canary-push-1f8b32d9-4c07a65e93d2",
    "CALLKEEPER_ADMIN": "ops:canary-admin-0123456-4c07a65e93d2",
}
PATHS = [
    "/",
    "/push/",
    "/healthz",
    "/rq",
    "/rq/",
    "/rq/0/view",
    "/board",
    "/desk/calls",
    "/desk/calls/",
    "/metrics",
    "/nothing",
]


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[httpx.AsyncClient]:
    """Return a client of the application with everything switched on, without credentials."""
    log: Any = structlog.wrap_logger(None, processors=[structlog.testing.LogCapture()])
    app = web_app(WebSettings.load({"REDIS_URL": redis_url, **ENVIRON}), log)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://evil.example") as client,
    ):
        yield client


async def test_every_answer_is_safe_to_show(client: httpx.AsyncClient) -> None:
    """Pages, data, refusals and what does not exist: each header once, no framing, nothing kept by caches."""
    for path in (*PATHS, "/%70ush", "//push", "/rq/%2e%2e/push"):
        answer = await client.get(httpx.URL("http://evil.example", raw_path=path.encode()))
        assert {name: len(answer.headers.get_list(name)) for name in EVERYWHERE} == dict.fromkeys(EVERYWHERE, 1), path
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"], path


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_push_answers_without_headers_for_browsers(method: str, client: httpx.AsyncClient) -> None:
    """Only machines ask for /push, thousands of times a second: its answers carry none of the headers for browsers."""
    answer = await client.request(method, "/push")
    assert [name for name in EVERYWHERE if name in answer.headers] == []


async def test_no_answer_repeats_the_host(client: httpx.AsyncClient) -> None:
    """Neither a redirect nor a link is made of what the Host or a forwarded header says."""
    forged = {"X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "https", "Forwarded": "host=evil.example"}
    for path in ("/push", *PATHS):
        answer = await client.get(path, headers=forged)
        assert "evil.example" not in answer.text + str(answer.headers), path


async def test_root_leads_to_the_board(client: httpx.AsyncClient) -> None:
    """The root address redirects to the board, which requires the login."""
    answer = await client.get("/")
    assert (answer.status_code, answer.headers["location"]) == (307, "/board")
    assert (await client.get("/", follow_redirects=True)).status_code == 401

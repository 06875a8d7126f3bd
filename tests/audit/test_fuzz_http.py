"""Thousands of random requests to a web process: none is answered with 5xx, and none logs an error."""

import asyncio
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest
import structlog

from callkeeper.app.settings import WebSettings
from callkeeper.app.web_app import web_app
from tests.acceptance.test_canaries import templates_of
from tests.audit.conftest import ENVIRON, Effort, Target
from tests.audit.raw_requests import Gunner, Shot

AT_ONCE = 16
SEED = int(os.environ.get("CALLKEEPER_AUDIT_SEED", "1"))
ANSWERED_WITHIN_S = 20.0


@pytest.fixture
def gunner(redis_url: str) -> Gunner:
    """Return a source of requests to every address of the application."""
    log: Any = structlog.wrap_logger(None, processors=[structlog.testing.LogCapture()])
    app = web_app(WebSettings.load({"REDIS_URL": redis_url, **ENVIRON}), log)
    return Gunner(sorted(templates_of(app, "")), SEED)


async def fire(port: int, shots: Iterator[Shot], statuses: Counter[int], failures: list[tuple[int, bytes]]) -> None:
    """Send requests over one connection after the other, and count the statuses."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for shot in shots:
        status, is_open = 0, False
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            writer.write(shot.raw)
            status, is_open = await asyncio.wait_for(_answer(reader, shot.method), ANSWERED_WITHIN_S)
        statuses[status] += 1
        if status >= 500:
            failures.append((status, shot.raw[:600]))
        if not is_open:
            writer.transport.abort()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.transport.abort()


async def _answer(reader: asyncio.StreamReader, method: str) -> tuple[int, bool]:
    """Return an answer's status, and whether another request can follow on the connection."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    status = int(head.split(b" ", 2)[1])
    if status == 100:
        return await _answer(reader, method)
    _, found, rest = head.partition(b"\r\ncontent-length: ")
    if method == "HEAD" or status in {204, 304}:
        return status, b"connection: close" not in head
    if not found:
        return status, False
    await reader.readexactly(int(rest.partition(b"\r\n")[0]))
    return status, b"connection: close" not in head


@pytest.mark.timeout(600)
async def test_no_request_is_answered_with_5xx(target: Target, gunner: Gunner, effort: Effort) -> None:
    """Random requests to all addresses are answered with a status below 500 or closed, and no error is logged."""
    statuses: Counter[int] = Counter()
    failures: list[tuple[int, bytes]] = []
    shots = (gunner.shot() for _ in range(effort.requests))
    await asyncio.gather(*(fire(target.port, shots, statuses, failures) for _ in range(AT_ONCE)))
    print(f"{effort.requests} requests, seed {SEED}: {dict(sorted(statuses.items()))}")  # noqa: T201
    errors = target.events("error", "critical")
    print(Counter(str(line.get("trace")) for line in errors).most_common(5))  # noqa: T201
    assert failures == []
    assert statuses.total() == effort.requests
    assert {200, 202, 400, 401, 403, 404, 405, 413, 415} <= set(statuses), "some kinds of answers are missing"
    assert errors == []
    async with httpx.AsyncClient(base_url=target.url, trust_env=False) as client:
        assert (await client.get("/readyz")).status_code == 200

"""Web processes with different settings are an incident."""

from contextlib import AsyncExitStack
from typing import Any

import structlog
from redis.asyncio import Redis

from callkeeper.app.settings import WebSettings
from callkeeper.app.web_app import web_app
from callkeeper.calls.causes import IncidentKind
from callkeeper.calls.incident_detection import incidents_of
from callkeeper.calls.metrics.signals import SignalReader
from callkeeper.calls.store.keys import Keys
from tests.waiting import until_async


async def test_web_processes_with_other_push_headers_are_named(redis: Redis, redis_url: str) -> None:
    """Both take requests, and each refuses the pushes of the other: board, doctor and alerts say so."""
    log: Any = structlog.wrap_logger(None, processors=[structlog.testing.LogCapture()])

    async def are_named() -> bool:
        found = incidents_of(await SignalReader(redis, Keys()).read())
        advice = [one.advice for one in found if one.kind is IncidentKind.PROCESSES_DIFFER]
        return [each.partition(":")[0] for each in advice] == ["CALLKEEPER_PUSH_HEADERS"]

    async with AsyncExitStack() as stack:
        for headers in (
            "X-Push-Key: canary-push-1f8b32d9-4c07a65e93d2",
            "X-Push-Key: canary-push-77c0d1e2-4c07a65e93d2",
        ):
            settings = WebSettings.load({"REDIS_URL": redis_url, "CALLKEEPER_PUSH_HEADERS": headers})
            app = web_app(settings, log)
            await stack.enter_async_context(app.router.lifespan_context(app))
        await until_async(are_named)

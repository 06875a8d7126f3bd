"""Typical receivers of events: ``python -m benchmarks.peers.receivers answering|plain|fastapi PORT``.

``answering`` only reads and answers: the upper limit. ``plain`` is Starlette and an RQ job for every event, enqueued in
a thread because RQ blocks. ``fastapi`` is FastAPI with an arq job for every event. All run under uvicorn with httptools
and uvloop.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from benchmarks.peers.plain import REDIS_URL


def answering() -> Any:
    """Return the application that only answers."""

    async def push(request: Request) -> JSONResponse:
        json.loads(await request.body())
        return JSONResponse({"accepted": True}, 202)

    return Starlette(routes=[Route("/push", push, methods=["POST"])])


def plain() -> Any:
    """Return Starlette with an RQ job for every event."""
    from redis import Redis  # noqa: PLC0415  (each way loads its own)
    from rq import Queue  # noqa: PLC0415

    queue = Queue("bench", connection=Redis.from_url(REDIS_URL))

    async def push(request: Request) -> JSONResponse:
        event = json.loads(await request.body())
        job = await asyncio.to_thread(queue.enqueue, "benchmarks.peers.receivers.handle", event)
        return JSONResponse({"accepted": True, "event_id": job.id}, 202)

    return Starlette(routes=[Route("/push", push, methods=["POST"])])


def fastapi() -> Any:
    """Return FastAPI with an arq job for every event."""
    from arq import create_pool  # noqa: PLC0415
    from arq.connections import RedisSettings  # noqa: PLC0415
    from fastapi import FastAPI  # noqa: PLC0415
    from pydantic import BaseModel  # noqa: PLC0415

    class Event(BaseModel):  # type: ignore[misc]  # installed only in the peers' environment
        Type: str
        InstitutionKey: str
        VoiceId: str | None = None
        AlternateVoiceId: str | None = None
        PhoneNumber: str | None = None
        IsTest: bool | None = None

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        app.state.pool = await create_pool(RedisSettings.from_dsn(REDIS_URL))
        yield

    app = FastAPI(lifespan=lifespan)

    async def push(event: Event) -> dict[str, object]:
        job = await app.state.pool.enqueue_job("handle", event.model_dump())
        return {"accepted": True, "event_id": job.job_id}

    app.post("/push", status_code=202)(push)
    return app


def handle(event: dict[str, object]) -> None:
    """Do nothing, because no worker runs these jobs."""


if __name__ == "__main__":
    application = {"answering": answering, "plain": plain, "fastapi": fastapi}[sys.argv[1]]()
    uvicorn.run(
        application,
        port=int(sys.argv[2]),
        http="httptools",
        loop="uvloop",
        log_level="error",
        access_log=False,
    )

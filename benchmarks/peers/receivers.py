"""Typical receivers of events: ``python -m benchmarks.peers.receivers answering|plain PORT``.

``answering`` only reads and answers: the upper limit. ``plain`` is Starlette and an RQ job for every event, enqueued in
a thread because RQ blocks. Both run under uvicorn with httptools and uvloop.
"""

import asyncio
import json
import sys
from typing import Any

import uvicorn
from redis import Redis
from rq import Queue
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
    queue = Queue("bench", connection=Redis.from_url(REDIS_URL))

    async def push(request: Request) -> JSONResponse:
        event = json.loads(await request.body())
        job = await asyncio.to_thread(queue.enqueue, "benchmarks.peers.receivers.handle", event)
        return JSONResponse({"accepted": True, "event_id": job.id}, 202)

    return Starlette(routes=[Route("/push", push, methods=["POST"])])


def handle(event: dict[str, object]) -> None:
    """Do nothing, because no worker runs these jobs."""


if __name__ == "__main__":
    application = {"answering": answering, "plain": plain}[sys.argv[1]]()
    uvicorn.run(
        application,
        port=int(sys.argv[2]),
        http="httptools",
        loop="uvloop",
        log_level="error",
        access_log=False,
    )

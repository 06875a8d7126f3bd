"""``/metrics``: what monitoring reads, in Prometheus's text form; to be mounted behind the watchers' login."""

from datetime import datetime

from prometheus_client.exposition import choose_encoder
from redis.asyncio import Redis
from redis.exceptions import RedisError
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from calls.figures import FigureReader, read_present
from calls.keys import Keys
from calls.listings import Listings
from desk.exposition import Everything


async def read_everything(redis: "Redis", *, keys: Keys | None = None, now: datetime | None = None) -> Everything:
    """Read all that is exported.

    Args:
        redis: Answers in bytes.
        keys: Where everything is kept.
        now: Replaces Redis's clock.

    Raises:
        redis.exceptions.RedisError: Redis is away.
    """
    reader = FigureReader(redis, keys=keys)
    standings = await Listings(redis, keys=keys).standings()
    now_ms = int(now.timestamp() * 1000) if now else None
    return Everything(
        await reader.totals(),
        await read_present(redis, keys=keys, now_ms=now_ms),
        await reader.processes(),
        sorted(standings),
    )


class MetricsPage:
    """The page, an ASGI application."""

    def __init__(self, redis: "Redis", *, keys: Keys | None = None) -> None:
        self._redis = redis
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive)
        answer = await self._answer(request) if request.method in {"GET", "HEAD"} else Response(status_code=405)
        await answer(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        try:
            everything = await read_everything(self._redis, keys=self._keys)
        except (RedisError, OSError):
            return PlainTextResponse("Redis does not answer.\n", 503)
        encode, media_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(everything), media_type=media_type)

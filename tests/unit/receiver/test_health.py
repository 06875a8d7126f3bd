"""``/healthz`` and ``/readyz``."""

from typing import Any

import httpx
import pytest
from fakeredis import FakeAsyncRedis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ReadOnlyError
from starlette.applications import Starlette

from receiver.health import health_routes


class Faulty:
    """A Redis in this process, which knows no ROLE; it may fail at one command."""

    def __init__(self, redis: Any, says: bytes = b"master", **failures: Exception) -> None:
        self._redis, self._says, self._failures = redis, says, failures

    def __getattr__(self, name: str) -> Any:
        async def fail(*_: Any, **__: Any) -> None:
            raise self._failures[name]

        return fail if name in self._failures else getattr(self._redis, name)

    async def role(self) -> list[bytes]:
        """Say what it is."""
        if "role" in self._failures:
            raise self._failures["role"]
        return [self._says]


async def asked(redis: Any, path: str) -> tuple[int, Any]:
    """Return an answer."""
    transport = httpx.ASGITransport(Starlette(routes=health_routes(redis)))
    async with httpx.AsyncClient(transport=transport, base_url="http://web") as client:
        answer = await client.get(path)
    return answer.status_code, answer.json()


async def test_process_is_healthy_without_redis() -> None:
    """It answers, and restarting it would help nobody."""
    assert await asked(None, "/healthz") == (200, {"healthy": True})


async def test_process_is_ready_if_redis_takes_writes(fake_redis: FakeAsyncRedis) -> None:
    """Also while the service is away: pushes must still reach us."""
    assert await asked(Faulty(fake_redis), "/readyz") == (200, {"ready": True, "service": "there"})


@pytest.mark.parametrize(
    "fault",
    [{"says": b"slave"}, {"set": ReadOnlyError("READONLY")}, {"role": RedisConnectionError("down")}],
    ids=["a replica", "read-only", "down"],
)
async def test_process_is_not_ready_if_redis_takes_none(fake_redis: FakeAsyncRedis, fault: Any) -> None:
    """The answer reveals no details."""
    assert await asked(Faulty(fake_redis, **fault), "/readyz") == (503, {"ready": False})


async def test_readiness_is_remembered_for_a_second(fake_redis: FakeAsyncRedis) -> None:
    """Whoever asks again at once costs Redis nothing."""
    redis = Faulty(fake_redis)
    transport = httpx.ASGITransport(Starlette(routes=health_routes(redis)))  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://web") as client:
        first = await client.get("/readyz")
        redis.role = None  # type: ignore[method-assign, assignment]
        again = [await client.get("/readyz") for _ in range(3)]
    assert [(each.status_code, each.json()) for each in again] == [(200, first.json())] * 3

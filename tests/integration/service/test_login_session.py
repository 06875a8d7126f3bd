"""Promise 5: one login per token lapse, whatever the number of workers; over real sockets and a real Redis."""

import asyncio
from contextlib import AsyncExitStack

from redis.asyncio import Redis

from callkeeper.calls.store.sso_token import RedisTokenStore
from tests.integration.service.raw_service import Arrival, client, raw_service, reply


async def test_fifty_requests_of_five_workers_on_a_lapsed_token_make_one_login(redis_url: str) -> None:
    """D1: fifty concurrent requests over five clients with a Redis connection each: one login, one repeat each."""
    valid = "sso-1"
    now = 1_800_000_000.0

    async def respond(arrival: Arrival, writer: asyncio.StreamWriter) -> None:
        is_valid = arrival.headers["ssotoken"] == valid
        writer.write(reply(200, b'{"success":true,"phoneCallId":1}') if is_valid else reply(401))

    async with raw_service(respond) as service, AsyncExitStack() as stack:
        clients = []
        for _ in range(5):
            redis = await stack.enter_async_context(Redis.from_url(redis_url))
            store = RedisTokenStore(redis, clock=lambda: now)
            clients.append(await stack.enter_async_context(client(service.url, store)))

        async def read_all(times: int) -> None:
            reads = (c.details("cu-1", "v-1", check=False, requested_by="bot") for c in clients for _ in range(times))
            await asyncio.gather(*reads)

        await read_all(1)
        assert len(service.logins) == 1
        valid = "sso-2"
        now += 60
        service.arrivals.clear()
        await read_all(10)

    assert len(service.logins) == 2
    sent = [arrival.headers["ssotoken"] for arrival in service.arrivals]
    assert sent.count("sso-2") == 50
    assert sent.count("sso-1") <= 50

"""Tickets for the desk's stream at a running web process."""

import httpx
from redis import Redis

from tests.audit.conftest import Target
from tests.audit.raw_requests import TOKEN

ODD = ("abc", "x" * 5000, "a/../b", "\u0661790000000.a.b", "", ".", "..", "0" * 11 + ".a.b")


def test_invented_tickets_are_refused(target: Target) -> None:
    """A real one from the same address still opens a stream, once."""
    with httpx.Client(base_url=target.url, headers={"X-Forwarded-For": "203.0.113.7"}, trust_env=False) as client:
        real = client.post("/desk/tickets", headers={"Authorization": f"Bearer {TOKEN}"}).json()["ticket"]
        forged = [f"{real.rpartition('.')[0]}.{n:064x}" for n in range(20)]
        statuses = {client.get("/desk/stream", params={"ticket": ticket}).status_code for ticket in (*ODD, *forged)}
        assert statuses == {401, 429}
        with client.stream("GET", "/desk/stream", params={"ticket": real}) as answer:
            assert answer.status_code == 200
        assert client.get("/desk/stream", params={"ticket": real}).status_code == 429


def test_redis_holds_no_ticket_that_can_be_used(target: Target, redis_url: str) -> None:
    """Whoever reads Redis finds no ticket there: neither its name nor what is kept opens a stream."""
    with httpx.Client(base_url=target.url, trust_env=False) as client, Redis.from_url(redis_url) as redis:
        real = client.post("/desk/tickets", headers={"Authorization": f"Bearer {TOKEN}"}).json()["ticket"]
        [key] = redis.keys("ck:2:ticket:*")
        assert real.encode() not in b"\n".join([*redis.keys("*"), redis.get(key)])
        for found in (key.decode().removeprefix("ck:2:ticket:"), redis.get(key).decode()):
            assert client.get("/desk/stream", params={"ticket": found}).status_code == 401
        with client.stream("GET", "/desk/stream", params={"ticket": real}) as answer:
            assert answer.status_code == 200

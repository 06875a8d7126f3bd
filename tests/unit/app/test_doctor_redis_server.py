"""The doctor's findings about Redis, from the server's answers."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from callkeeper.app.doctor.finding import Finding, Severity, Topic
from callkeeper.app.doctor.redis_server import store_findings
from callkeeper.app.redis_location import RedisLocation, Tls, parse_location

GOOD: dict[str, Any] = {
    "redis_version": "7.2.4",
    "role": "master",
    "maxmemory_policy": "noeviction",
    "aof_enabled": 1,
    "aof_last_write_status": "ok",
    "used_memory": 100 * 2**20,
    "maxmemory": 1000 * 2**20,
}


class Server:
    """Answers INFO, TIME and CONFIG GET as it is told."""

    def __init__(self, *other_sentinels: int, **differences: Any) -> None:
        self._other_sentinels = other_sentinels
        self._info = {**GOOD, **differences}
        self._synced = self._info.pop("appendfsync", "everysec")

    async def info(self) -> dict[str, Any]:
        """Return what the server tells."""
        return self._info

    async def set(self, name: str, value: int, *, ex: int) -> bool:
        """Take a write."""
        return True

    def register_script(self, script: str) -> Callable[[], Awaitable[bool]]:
        """Take a script, which does nothing."""
        return self.ping

    async def ping(self) -> bool:
        """Answer."""
        return True

    async def time(self) -> tuple[int, int]:
        """Tell the time."""
        return 0, 0

    async def named_masters(self) -> list[dict[str, int]]:
        """Return how many others each sentinel knows."""
        return [{"num-other-sentinels": others} for others in self._other_sentinels]

    async def config_get(self, name: str) -> dict[str, str]:
        """Return a setting."""
        return {name: self._synced}


async def look(place: RedisLocation, **differences: Any) -> dict[Topic, Finding]:
    """Return what is found, by topic."""
    server: Any = Server(**differences)
    return {finding.topic: finding for finding in await store_findings(server, place)}


@pytest.mark.parametrize(
    ("differences", "topic", "severity", "words"),
    [
        ({"redis_version": "6.0.16"}, Topic.REDIS, Severity.FAULT, "too old"),
        ({"role": "slave"}, Topic.REDIS, Severity.FAULT, "accepts no writes"),
        ({"maxmemory_policy": "volatile-lru"}, Topic.REDIS_EVICTION, Severity.FAULT, "delete calls"),
        ({"aof_enabled": 0}, Topic.REDIS_PERSISTENCE, Severity.WARNING, "loses live calls"),
        ({"aof_last_write_status": "err"}, Topic.REDIS_PERSISTENCE, Severity.FAULT, "cannot be written"),
        ({"appendfsync": "no"}, Topic.REDIS_PERSISTENCE, Severity.WARNING, "appendfsync no"),
        ({"used_memory": 750 * 2**20}, Topic.REDIS_MEMORY, Severity.WARNING, "750 of 1000 MiB"),
        ({"used_memory": 950 * 2**20}, Topic.REDIS_MEMORY, Severity.FAULT, "950 of 1000 MiB"),
        ({"connected_slaves": 2}, Topic.REDIS_FAILOVER, Severity.WARNING, "the master accepts writes without any"),
        ({"connected_slaves": 2, "min_slaves_good_slaves": 2}, Topic.REDIS_FAILOVER, Severity.OK, "only with enough"),
    ],
)
async def test_redis_that_is_not_as_it_should_be_is_named(
    differences: dict[str, Any], topic: Topic, severity: Severity, words: str
) -> None:
    """One wrong setting gives one warning or fault with its remedy; all other findings are ok."""
    found = await look(parse_location("redis://localhost/0"), **differences)
    assert found[topic].severity is severity
    assert words in found[topic].detail
    assert bool(found[topic].remedy) is (severity is not Severity.OK)
    assert {finding.severity for other, finding in found.items() if other is not topic} == {Severity.OK}


async def test_sentinels_without_a_replica_are_warned_of() -> None:
    """With sentinels but without a replica a failover is impossible, so the doctor warns."""
    found = await look(parse_location("redis+sentinel://h1,h2/master/0"))
    assert found[Topic.REDIS_FAILOVER].detail == "the master has no replica"


@pytest.mark.parametrize(
    ("url", "tls", "severity", "words"),
    [
        ("redis://localhost/0", Tls.VERIFIED, Severity.OK, "not encrypted, on this machine"),
        ("redis://10.1.2.3:6379/0", Tls.VERIFIED, Severity.OK, "private network"),
        ("redis://redis-0.redis.svc:6379/0", Tls.VERIFIED, Severity.OK, "private network"),
        ("redis://red.example:6379/0", Tls.VERIFIED, Severity.WARNING, "redis://red.example:6379/0 is not encrypted"),
        ("rediss://red.example:6379/0", Tls.VERIFIED, Severity.OK, "the certificate verified"),
        ("rediss://red.example:6379/0", Tls.UNVERIFIED, Severity.WARNING, "not authenticated"),
    ],
)
async def test_redis_tls_is_judged_by_where_it_is(url: str, tls: Tls, severity: Severity, words: str) -> None:
    """Outside the private network encryption is required, and a certificate must always be verified."""
    place = parse_location(url)
    found = await look(RedisLocation(url=place.url, sentinels=None, address=place.address, tls=tls))
    assert found[Topic.REDIS_TLS].severity is severity
    assert words in found[Topic.REDIS_TLS].detail


@pytest.mark.parametrize(("others", "found"), [((1, 2), ["REDIS_URL names 2 of 3 sentinels"]), ((1, 1), []), ((), [])])
async def test_sentinels_that_the_url_does_not_name_are_told(others: tuple[int, ...], found: list[str]) -> None:
    """Without those the processes learn late that a master is being replaced."""
    server: Any = Server(*others, connected_slaves=2, min_slaves_good_slaves=2)
    place = parse_location("redis+sentinel://10.0.0.8,10.0.0.9/calls-master/0")
    findings = await store_findings(server, place)
    about = [finding for finding in findings if finding.topic is Topic.REDIS_FAILOVER]
    assert [finding.detail for finding in about if finding.severity is Severity.WARNING] == found

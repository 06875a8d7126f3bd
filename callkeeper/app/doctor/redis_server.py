"""Checks Redis: whether it can be reached, keeps its data and answers quickly."""

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from statistics import median
from typing import Any, Final

from redis.asyncio import Redis
from redis.exceptions import RedisError

from callkeeper.app.connections import blocking_redis, other_mode
from callkeeper.app.doctor.finding import Finding, Topic, fault, graded, ok, warning
from callkeeper.app.redis_failure import SINGLE_REMEDY, redis_failure
from callkeeper.app.redis_location import RedisLocation, Sentinels, Tls
from callkeeper.app.redis_rights import REMEDY, missing_rights
from callkeeper.calls.store.in_bytes import RedisInBytes, in_bytes
from callkeeper.calls.store.keys import KEYS, Keys
from callkeeper.calls.store.migrating import Migration, NotMigrated

OLDEST: Final = (6, 2)
"""The oldest supported version."""

SLOW_MS, TOO_SLOW_MS = 20.0, 200.0
"""A check needs three round trips (claim, booking, save) and is planned to the second."""

FULL, TOO_FULL = 0.7, 0.9
"""Shares of the memory limit. With ``noeviction``, Redis refuses writes when its memory is full."""

_PINGS: Final = 15


async def store_findings(redis: Redis, place: RedisLocation, keys: Keys = KEYS) -> list[Finding]:
    """Check Redis. If it does not answer, or refuses what every process needs, return only that fault."""
    if missing := await asyncio.to_thread(missing_rights, place, keys):
        return [fault(Topic.REDIS, f"{place.address}: our user lacks rights: {' '.join(missing)}", REMEDY)]
    try:
        return await _server_findings(redis, place)
    except (RedisError, OSError) as error:
        failure = redis_failure(place, error)
        return [fault(Topic.REDIS, f"{place.address} {failure.what}", failure.advice)]


def migration_finding(place: RedisLocation, keys: Keys, *, may_copy: bool) -> Finding | None:
    """Return the fault of data that an older release left and nobody copied; None also if Redis does not answer.

    ``may_copy``: copy them, as the release step does.
    """
    try:
        with suppress(RedisError, OSError), blocking_redis(place) as redis:
            migration = Migration(redis, keys)
            if may_copy and migration.is_needed():
                migration.copy()
            migration.require()
    except NotMigrated as error:
        return fault(Topic.REDIS, "its data are of an older release", " ".join(error.args))
    return None


async def _server_findings(redis: Redis, place: RedisLocation) -> list[Finding]:
    client = in_bytes(redis)
    info: dict[str, Any] = await client.info()
    if (mode := other_mode(info)) is not None:
        return [fault(Topic.REDIS, f"{place.address} is {mode}", SINGLE_REMEDY)]
    return [
        _version(place, info),
        _tls(place),
        _eviction(info),
        await _persistence(client, info),
        await _latency(client),
        _memory(info),
        *_failover(place, info),
        *(await _sentinels(client, place.sentinels) if place.sentinels else []),
    ]


def _version(place: RedisLocation, info: Mapping[str, Any]) -> Finding:
    name, version = info.get("server_name", "redis"), str(info.get("redis_version", "0"))
    detail = f"{place.address}, {name} {info.get('valkey_version', version)}"
    if info.get("role") != "master":
        remedy = "REDIS_URL must lead to the master; behind sentinels use redis+sentinel://"
        return fault(Topic.REDIS, f"{detail}: a replica, which accepts no writes", remedy)
    if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < OLDEST:
        return fault(Topic.REDIS, f"{detail}: too old", "use Redis 6.2 or newer, or Valkey")
    return ok(Topic.REDIS, detail)


def _tls(place: RedisLocation) -> Finding:
    if place.uses_tls and place.tls is Tls.UNVERIFIED:
        remedy = "name the authority in CALLKEEPER_CA and remove CALLKEEPER_REDIS_TLS"
        return warning(
            Topic.REDIS_TLS, "encrypted, but any certificate is accepted: the server is not authenticated", remedy
        )
    if place.uses_tls:
        return ok(Topic.REDIS_TLS, "encrypted, the certificate verified")
    if not place.is_exposed:
        return ok(Topic.REDIS_TLS, "not encrypted, on this machine or in a private network")
    remedy = "use rediss://, because calls and the service's token are sent over this connection"
    return warning(Topic.REDIS_TLS, f"{place.address} is not encrypted, and not in a private network", remedy)


def _eviction(info: Mapping[str, Any]) -> Finding:
    policy = str(info.get("maxmemory_policy", "unknown"))
    if policy == "noeviction":
        return ok(Topic.REDIS_EVICTION, policy)
    remedy = "set maxmemory-policy to noeviction"
    return fault(Topic.REDIS_EVICTION, f"{policy}: Redis would delete calls when memory is short", remedy)


async def _persistence(client: RedisInBytes, info: Mapping[str, Any]) -> Finding:
    if not info.get("aof_enabled"):
        remedy = "set appendonly yes, appendfsync everysec"
        return warning(Topic.REDIS_PERSISTENCE, "no append-only file: a restart loses live calls", remedy)
    if info.get("aof_last_write_status", "ok") != "ok":
        return fault(Topic.REDIS_PERSISTENCE, "the append-only file cannot be written", "make room on Redis's disk")
    try:
        synced = (await client.config_get("appendfsync")).get("appendfsync", "unknown")
    except RedisError:
        synced = "appendfsync unknown"  # managed servers hide it
    if synced == "no":
        remedy = "set appendfsync everysec"
        return warning(Topic.REDIS_PERSISTENCE, "appendfsync no: a crash can lose many seconds of writes", remedy)
    return ok(Topic.REDIS_PERSISTENCE, f"append-only file, {synced}")


async def _latency(client: RedisInBytes) -> Finding:
    took_ms = []
    for _ in range(_PINGS):
        began_s = time.perf_counter()
        await client.time()  # Redis refuses PING too after a failed snapshot
        took_ms.append((time.perf_counter() - began_s) * 1000)
    middle = median(took_ms)
    detail = f"median {middle:.1f} ms, at most {max(took_ms):.1f} ms, of {_PINGS} round trips"
    remedy = "put Redis into the same region and network; look for other clients' slow commands (SLOWLOG GET)"
    return graded(Topic.REDIS_LATENCY, middle, detail, remedy, warn=SLOW_MS, fail=TOO_SLOW_MS)


def _memory(info: Mapping[str, Any]) -> Finding:
    used, limit = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    if not limit:
        return ok(Topic.REDIS_MEMORY, f"{used / 2**20:.0f} MiB used, no limit set")
    remedy = "give Redis more memory: when it is full it refuses writes, and pushes are answered with 503"
    detail = f"{used / 2**20:.0f} of {limit / 2**20:.0f} MiB used"
    return graded(Topic.REDIS_MEMORY, used / limit, detail, remedy, warn=FULL, fail=TOO_FULL)


def _failover(place: RedisLocation, info: Mapping[str, Any]) -> list[Finding]:
    """Check whether a failover could lose writes, if there are sentinels or replicas."""
    replicas = int(info.get("connected_slaves", 0))
    if place.sentinels is None and not replicas:
        return []
    if not replicas:
        return [warning(Topic.REDIS_FAILOVER, "the master has no replica", "attach one: a failover is impossible now")]
    if "min_slaves_good_slaves" not in info:
        remedy = "with two replicas or more set min-replicas-to-write 1: otherwise an old master still accepts writes"
        detail = f"{replicas} replicas; the master accepts writes without any"
        return [warning(Topic.REDIS_FAILOVER, detail, remedy)]
    return [ok(Topic.REDIS_FAILOVER, f"{replicas} replicas; the master accepts writes only with enough of them")]


async def _sentinels(client: Any, known: Sentinels) -> list[Finding]:
    """Check whether the URL names all sentinels: only the one that replaces the master says that it does."""
    there_are = 1 + max((master["num-other-sentinels"] for master in await client.named_masters()), default=0)
    if there_are <= len(known.addresses):
        return []
    detail = f"REDIS_URL names {len(known.addresses)} of {there_are} sentinels"
    return [warning(Topic.REDIS_FAILOVER, detail, "name all: what another one does at a failover is noticed late")]

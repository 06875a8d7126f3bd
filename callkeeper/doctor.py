"""Finds out whether an installation can do its work: one finding a line, each fault with its remedy."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import AuthenticationError, RedisError

from callkeeper.connections import worker_redis
from callkeeper.environment import Fault, SettingsWrong
from callkeeper.pause_view import pause_lines
from callkeeper.settings import WebSettings, WorkerSettings
from callkeeper.wiring import rule_book, service_config
from calls.keys import Keys
from calls.pausing import Pausing
from calls.rules import RulesError, load_rules
from calls.tokens import RedisTokenStore
from reseller import Reseller, ResellerError

LATE_S = 5.0
"""A due call that waits longer than this has too few workers."""


class State(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, how it is, and what to do about it where it is not well."""

    what: str
    state: State
    detail: str
    remedy: str = ""


def _ok(what: str, detail: str) -> Finding:
    return Finding(what, State.OK, detail)


async def examine(environ: Mapping[str, str]) -> AsyncIterator[Finding]:
    """Look at everything that can be looked at; what depends on a fault is left out."""
    for finding in _settings(environ):
        yield finding
    try:
        settings = WorkerSettings.load(environ)
    except SettingsWrong:
        return
    for finding in _rules(settings):
        yield finding
    keys = settings.store.keys
    async with worker_redis(settings.store.redis) as redis:
        store = await _redis(redis, settings)
        for finding in store:
            yield finding
        if any(finding.state is State.FAULT for finding in store):
            return
        async for finding in _service(redis, settings):
            yield finding
        for finding in (await _workers(redis, keys), await _lateness(redis, keys), await _attention(redis, keys)):
            yield finding
        for finding in await _pauses(redis, keys):
            yield finding


def _settings(environ: Mapping[str, str]) -> list[Finding]:
    """Read the settings of web and worker; every fault is a finding of its own."""
    faults: dict[Fault, None] = {}
    for section in (WebSettings, WorkerSettings):
        try:
            section.load(environ)
        except SettingsWrong as error:
            faults.update(dict.fromkeys(error.faults))
    if not faults:
        return [_ok("settings", "web and worker have what they need")]
    return [
        Finding(f"settings {name}", State.FAULT, problem, f"for example {name}={example}")
        for name, problem, example in faults
    ]


def _rules(settings: WorkerSettings) -> list[Finding]:
    name = str(settings.rules or "default")
    try:
        book = rule_book(settings)
    except RulesError as error:
        remedy = "correct the file; workers do not start on it"
        return [Finding("rules", State.FAULT, line, remedy) for line in error.lines]
    shadow = sum(rule.stage == "shadow" for rule in book.rules)
    rules = f"{len(book.rules)} rules, {shadow} of them in shadow" if shadow else f"{len(book.rules)} rules"
    return [_ok("rules", f"{name}, digest {book.digest}, {rules}, {len(book.schedule.at_s)} checks")]


async def _redis(redis: "Redis", settings: WorkerSettings) -> list[Finding]:
    where = settings.store.redis.address
    try:
        info: dict[str, Any] = await redis.info()
    except AuthenticationError:
        return [Finding("redis", State.FAULT, f"{where} refuses the login", "correct user and password in REDIS_URL")]
    except (RedisError, OSError) as error:
        remedy = "start it, or correct REDIS_URL; rediss:// is TLS, redis:// is not"
        return [Finding("redis", State.FAULT, f"{where} does not answer ({type(error).__name__})", remedy)]
    return [_ok("redis", f"{where}, version {info.get('redis_version')}"), _eviction(info), _persistence(info)]


def _eviction(info: Mapping[str, Any]) -> Finding:
    policy = str(info.get("maxmemory_policy", "unknown"))
    if policy == "noeviction":
        return _ok("redis eviction", policy)
    remedy = "set maxmemory-policy to noeviction"
    return Finding("redis eviction", State.FAULT, f"{policy}: calls would be forgotten when memory is short", remedy)


def _persistence(info: Mapping[str, Any]) -> Finding:
    if info.get("aof_enabled"):
        return _ok("redis persistence", "append-only file")
    remedy = "set appendonly yes, appendfsync everysec"
    return Finding("redis persistence", State.WARNING, "no append-only file: a restart forgets live calls", remedy)


async def _service(redis: "Redis", settings: WorkerSettings) -> AsyncIterator[Finding]:
    service = Reseller(service_config(settings.service), RedisTokenStore(redis, settings.store.key_prefix))
    try:
        keys = await service.institution_keys()
    except ResellerError as error:
        remedy = "check CALLKEEPER_SERVICE_URL, _ACCESS_TOKEN, _EMAIL and _PASSWORD"
        yield Finding("login", State.FAULT, f"{settings.service.url}: {error}", remedy)
    else:
        yield _ok("login", f"{settings.service.url}, {len(keys)} institutions")
        for finding in [_owned(settings, keys)] if settings.institutions else []:
            yield finding
        for finding in _rules_owned(settings, keys):
            yield finding
        for key in sorted(keys if settings.institutions is None else keys & set(settings.institutions)):
            yield await _queue(service, settings, key)
    finally:
        await service.aclose()


def _owned(settings: WorkerSettings, keys: frozenset[str]) -> Finding:
    foreign = sorted(set(settings.institutions or ()) - keys)
    if not foreign:
        return _ok("institutions", "all of CALLKEEPER_INSTITUTIONS may be managed")
    remedy = "have the service operator add them to the account, or take them out of CALLKEEPER_INSTITUTIONS"
    return Finding("institutions", State.FAULT, f"the account may not manage {', '.join(foreign)}", remedy)


def _rules_owned(settings: WorkerSettings, keys: frozenset[str]) -> list[Finding]:
    """Check the rules once more, now that the account's institutions are known."""
    known = _rule_faults(settings, None)
    remedy = "correct the key, or have the service operator add the institution to the account"
    return [Finding("rules", State.FAULT, line, remedy) for line in _rule_faults(settings, keys) if line not in known]


def _rule_faults(settings: WorkerSettings, owned: frozenset[str] | None) -> list[str]:
    try:
        load_rules(settings.rules, owned=owned)
    except RulesError as error:
        return error.lines
    return []


async def _queue(service: Reseller, settings: WorkerSettings, key: str) -> Finding:
    requested_by = settings.service.requested_by.for_institution(key)
    try:
        entries = await service.queue(key, continue_from=0, page_size=1, requested_by=requested_by)
    except ResellerError as error:
        remedy = f"check that {requested_by!r} is a core username of {key}, and its standing at the service"
        return Finding(f"queue {key}", State.FAULT, str(error), remedy)
    return _ok(f"queue {key}", "readable, calls are live" if entries else "readable, no live calls")


async def _workers(redis: "Redis", keys: Keys) -> Finding:
    alive = int(await redis.scard(keys.workers))
    if alive:
        return _ok("workers", f"{alive} alive")
    return Finding(
        "workers", State.FAULT, "none is alive: calls are recorded, nobody moves them", "start callkeeper worker"
    )


async def _lateness(redis: "Redis", keys: Keys) -> Finding:
    seconds, micros = await redis.time()
    first = await redis.zrange(keys.due, 0, 0, withscores=True)
    late_s = max(0.0, seconds + micros / 1e6 - float(first[0][1]) / 1000) if first else 0.0
    if late_s < LATE_S:
        return _ok("due calls", f"{late_s:.1f} s late at most")
    return Finding("due calls", State.FAULT, f"{late_s:.0f} s late", "start more workers, or look into their logs")


async def _attention(redis: "Redis", keys: Keys) -> Finding:
    count = int(await redis.hlen(keys.attention))
    if not count:
        return _ok("attention", "nothing needs a human")
    remedy = "callkeeper calls list names them; callkeeper calls resolve closes an unresolved effect"
    return Finding("attention", State.WARNING, f"{count} need a human", remedy)


async def _pauses(redis: "Redis", keys: Keys) -> list[Finding]:
    lines = pause_lines(await Pausing(redis, keys=keys).pauses())
    if not lines:
        return [_ok("pause", "nothing is paused")]
    remedy = "callkeeper resume, when the reason is gone"
    return [Finding("pause", State.WARNING, line, remedy) for line in lines]

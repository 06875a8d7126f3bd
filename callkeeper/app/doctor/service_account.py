"""Checks the service: clock, login, institutions and their queues."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Final

import aiohttp
import httpx
from redis.asyncio import Redis
from redis.exceptions import RedisError

from callkeeper.app.doctor.configuration import foreign_rules_findings
from callkeeper.app.doctor.finding import Finding, Topic, fault, ok, warning
from callkeeper.app.logs import quiet_log
from callkeeper.app.redis_query import redis_now
from callkeeper.app.settings import WorkerSettings
from callkeeper.app.terminal import safe
from callkeeper.app.wiring import AccountInUse, service_config
from callkeeper.calls.institutions import OBSTACLES, REMEDIES, KnownInstitutions, shown
from callkeeper.calls.quantity import quantity
from callkeeper.calls.rules import RulesError
from callkeeper.calls.store.last_errors import fault_words
from callkeeper.calls.store.request_budget import Permit, RequestBudget
from callkeeper.calls.store.script_runner import Scripts
from callkeeper.service import (
    AccessRefused,
    AnswerUnreadable,
    CertificateRefused,
    LoginRefused,
    MemoryTokenStore,
    ResellerError,
    ServiceUnavailable,
    TokenFault,
)
from callkeeper.service.aiohttp_transport import reads_transport
from callkeeper.service.client import Reseller
from callkeeper.service.config import ServiceConfig
from workers.standings import AT_ONCE, LIST, MayAsk, Standings, ask_standings, handled_in_test

SKEW_S = 3.0
"""Difference of clocks that gives a warning. A Date header has whole seconds only."""

_WITHIN_S: Final = 5.0


async def service_findings(
    redis: Redis, settings: WorkerSettings, named: Mapping[str, frozenset[str]]
) -> AsyncIterator[Finding]:
    """Check that nobody else uses our account, and the service with a separate login, whose token is not stored.

    The workers' shared token stays valid as long as it is used. It would hide a wrong password until it expires, hours
    after the deployment. Assumed (`login-keeps-earlier`): a second login does not end the first token.

    ``named`` are the institutions in the settings, by setting. Those in the rules file are checked elsewhere.
    """
    if others := await settings.account_use().others(redis):
        shared = AccountInUse(settings.store.key_prefix, others)
        yield fault(Topic.WORKERS, shared.detail, shared.remedy, about="of another installation")
    config = service_config(settings.service)
    yield await clock_finding(redis, config)
    service = Reseller(config, MemoryTokenStore(), log=quiet_log(logging.CRITICAL))
    try:
        listed = await service.institution_keys()
    except ResellerError as error:
        yield _no_login(settings, error)
        return
    else:
        yield ok(Topic.LOGIN, f"{settings.service.url}, {quantity(len(listed), 'institution')}")
        budget = _budget(redis, settings)
        may_ask = partial(_take_permit, budget)
        asked = await ask_standings(
            service, [LIST, *sorted(listed.union(settings.institutions or ()))], may_ask=may_ask
        )
        keys = listed.union(asked.known)
        names = {key: standing.name for key, standing in asked.known.items()}
        known = KnownInstitutions({key: names.get(key) for key in keys})
        for finding in [*_owned(settings, keys), *_named(named, known), *foreign_rules_findings(settings, keys)]:
            yield finding
        ours = sorted(keys if settings.institutions is None else keys & set(settings.institutions))
        asked.known = handled_in_test(asked.known, frozenset(settings.test_institutions))
        for finding in _standings(asked, ours):
            yield finding
        places = asyncio.Semaphore(AT_ONCE)
        queues = (_queue(service, settings, key, places, may_ask) for key in ours)
        for finding in await asyncio.gather(*queues):
            yield finding
    finally:
        await service.aclose()


def _budget(redis: Redis, settings: WorkerSettings) -> RequestBudget:
    """Return the request budget that the workers keep to."""
    try:
        limits = dict(settings.rule_book().limits)
    except RulesError:  # a finding of its own
        limits = {}
    keys = settings.store.keys
    return RequestBudget(
        Scripts(redis, keys=keys),
        redis,
        keys,
        monotonic=time.monotonic,
        rps=settings.service_rps,
        limits=limits,
        figures=None,
    )


async def _take_permit(budget: RequestBudget, key: str) -> bool:
    """Wait for a permit for a request about an institution. A Redis that gives none is a finding of its own."""
    with suppress(RedisError):
        await budget.poll()
        while wait_s := await budget.wait_s(Permit.LISTING, f"doctor:{key}", key):
            await asyncio.sleep(wait_s)
            await budget.poll()
    return True


async def clock_finding(redis: Redis, config: ServiceConfig) -> Finding:
    """Compare Redis's clock, which sets all due times, with the service's and this machine's."""
    ahead_s = time.time() - (await redis_now(redis)).timestamp()
    clocks = {"this machine": ahead_s}
    service_at = await _service_time(config)
    if service_at is not None:
        # The header has whole seconds: take the middle.
        clocks["the service"] = service_at.timestamp() + 0.5 - time.time() + ahead_s
    detail = ", ".join(f"{name} {ahead:+.1f} s" for name, ahead in clocks.items()) + ", seen from Redis"
    if service_at is None:
        detail += "; the service does not send its time"
    if max(map(abs, clocks.values())) < SKEW_S:
        return ok(Topic.CLOCK, detail)
    remedy = (
        "synchronise the clocks (NTP): calls are handled correctly, but logs, trails and figures are hard to compare"
    )
    return warning(Topic.CLOCK, detail, remedy)


async def _service_time(config: ServiceConfig) -> datetime | None:
    """Return the Date header of any answer to a request without credentials, which goes through the workers' proxy."""
    transport = reads_transport(config)
    try:
        async with asyncio.timeout(_WITHIN_S):
            answer = await transport.handle_async_request(httpx.Request("HEAD", config.base_url))
        await answer.aclose()
        return parsedate_to_datetime(answer.headers.get("date", ""))
    except (aiohttp.ClientError, OSError, ValueError, OverflowError):
        return None
    finally:
        await transport.aclose()


def _no_login(settings: WorkerSettings, error: ResellerError) -> Finding:
    if isinstance(error, LoginRefused):
        remedy = (
            "correct CALLKEEPER_EMAIL, _PASSWORD and _ACCESS_TOKEN; the service operator knows whether it is locked"
        )
    elif isinstance(error, CertificateRefused):
        _, remedy = fault_words(error.fault.name) or ("", "")
    elif isinstance(error, ServiceUnavailable):
        remedy = (
            "check CALLKEEPER_SERVICE_URL, and whether this network may reach it; workers then continue"
            if error.status is None
            else "ask the service's operator: what answers there is a fault, a limit, or something before the service"
        )
    else:
        remedy = "check CALLKEEPER_SERVICE_URL, _ACCESS_TOKEN, _EMAIL and _PASSWORD"
    return fault(Topic.LOGIN, f"{settings.service.url}: {_describe(error)}", remedy)


def _owned(settings: WorkerSettings, keys: frozenset[str]) -> list[Finding]:
    if not keys:
        remedy = "have the service operator give the account rights to your institutions"
        return [fault(Topic.INSTITUTIONS, "the account may manage no institution", remedy)]
    if settings.institutions is not None and keys.issuperset(settings.institutions):
        return [ok(Topic.INSTITUTIONS, "all of CALLKEEPER_INSTITUTIONS may be managed")]
    return []


def _named(named: Mapping[str, frozenset[str]], known: KnownInstitutions) -> list[Finding]:
    """Report settings with an institution that the account does not manage, with the most similar key."""
    found = []
    for setting, key, nearest in known.unknown(named):
        meant = f"; did you mean {known.called(nearest)}?" if nearest is not None else ""
        remedy = f"correct {setting}, or have the service operator give the account rights to the institution"
        found.append(
            fault(Topic.INSTITUTIONS, f"the account may not manage {shown(key)}{meant}", remedy, about=setting)
        )
    return found


def _standings(asked: Standings, keys: list[str]) -> list[Finding]:
    """Report institutions for which nothing is assigned, enrolled or rejected, and why."""
    found = []
    if asked.list_error is not None:
        remedy = "none is needed: each institution is read by its key; the service operator may know why"
        found.append(warning(Topic.INSTITUTIONS, f"their list cannot be read: {asked.list_error}", remedy))
    if unasked := [key for key in keys if key not in asked.known and key not in asked.unreadable]:
        why = "limits our requests (429)" if asked.left else "does not answer"
        detail = f"the state of {quantity(len(unasked), 'institution')} was not asked: the service {why}"
        found.append(warning(Topic.INSTITUTIONS, detail, "ask the service operator; workers ask for each of them"))
    for key in keys:
        standing = asked.known.get(key)
        if standing is None:
            if key in asked.unreadable:
                detail = f"its state cannot be read now: {asked.unreadable[key]}"
                remedy = "ask the service operator; after an hour without an answer nothing is done for its calls"
                found.append(warning(Topic.INSTITUTIONS, detail, remedy, about=key))
            continue
        if standing.obstacle is None:
            in_test = ", handled although in test mode" if standing.is_test_mode else ""
            found.append(ok(Topic.INSTITUTIONS, f"{standing.status}, with voice authentication{in_test}", about=key))
            continue
        remedy = f"{REMEDIES[standing.obstacle]}; or take it out of CALLKEEPER_INSTITUTIONS"
        detail = f"nothing is assigned, enrolled or rejected: {OBSTACLES.get(standing.obstacle, standing.obstacle)}"
        found.append(warning(Topic.INSTITUTIONS, detail, remedy, about=key))
    return found


def _describe(error: ResellerError) -> str:
    return f"{error}; the service says: {safe(error.full)}" if error.full else str(error)


async def _queue(
    service: Reseller, settings: WorkerSettings, key: str, places: asyncio.Semaphore, may_ask: MayAsk
) -> Finding:
    requested_by = settings.service.requested_by.for_institution(key)
    try:
        async with places:
            await may_ask(key)
            entries = await service.queue(key, continue_from=0, page_size=1, requested_by=requested_by)
    except ResellerError as error:
        match error:
            case TokenFault() | AccessRefused():
                remedy = "the login is good: ask the service operator what the account may do there"
            case ServiceUnavailable():
                remedy = "workers try again by themselves; if it lasts, ask the service operator"
            case AnswerUnreadable():
                remedy = "the answer is not in the documented form: report it to the service operator"
            case _:
                remedy = f"check that {requested_by!r} is a core username of {key}, and its state at the service"
        return fault(Topic.QUEUE, _describe(error), remedy, about=key)
    return ok(Topic.QUEUE, "readable, calls are live" if entries else "readable, no live calls", about=key)

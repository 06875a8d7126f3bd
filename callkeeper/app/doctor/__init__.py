"""Checks an installation: one finding per line, each fault with its remedy.

A check comes after those that it depends on. docs/operations.md has a section for every `Topic`.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Mapping
from functools import partial

from redis.asyncio import Redis
from redis.exceptions import RedisError

from callkeeper.app.connections import worker_redis
from callkeeper.app.doctor.alert_targets import alert_findings
from callkeeper.app.doctor.archive_findings import archive_findings
from callkeeper.app.doctor.causes import current_incidents, follows, guarded, incident_finding, provider_findings
from callkeeper.app.doctor.configuration import (
    ProcessKind,
    extra_findings,
    load_settings,
    released_variables,
    rules_findings,
    settings_findings,
    unknown_variable_findings,
)
from callkeeper.app.doctor.finding import Finding, Severity, Topic, fault
from callkeeper.app.doctor.pushes import front_findings, push_findings
from callkeeper.app.doctor.redis_server import migration_finding, store_findings
from callkeeper.app.doctor.work import waiting_findings, work_findings
from callkeeper.app.redis_failure import redis_failure
from callkeeper.app.settings import WebSettings, WorkerSettings
from callkeeper.calls.causes import IncidentKind
from callkeeper.calls.incident import Incident

__all__ = ["Finding", "ProcessKind", "Severity", "Topic", "examine"]


async def examine(
    environ: Mapping[str, str], *, before_deploy: bool = False, only: ProcessKind | None = None
) -> AsyncIterator[Finding]:
    """Check everything, except what depends on something that has a fault.

    Args:
        environ: The settings of web and worker together, or of ``only`` one of them.
        before_deploy: Leave out what runs only after a deployment: processes, due calls, pushes, the public address.
        only: Check only what this process needs, for environments with the settings of one process.
    """
    loaded = load_settings(environ, only)
    for finding in settings_findings(loaded):
        yield finding
    web, worker, _ = loaded
    known = worker or (web if only == "web" else None)
    if known is None:
        for finding in unknown_variable_findings(environ, frozenset()):
            yield finding
        return
    for finding in rules_findings(known):
        yield finding
    if lacking := extra_findings(web, worker):
        for finding in lacking:
            yield finding
        return
    async with worker_redis(known.store.redis) as redis:
        store = await store_findings(redis, known.store.redis, known.store.keys)
        for finding in store:
            yield finding
        of_older = partial(migration_finding, known.store.redis, known.store.keys, may_copy=before_deploy)
        if not_migrated := await asyncio.to_thread(of_older):
            yield not_migrated
            return
        is_away = any(finding.topic is Topic.REDIS and finding.severity is Severity.FAULT for finding in store)
        keys, is_release = known.store.keys, before_deploy
        released, incidents, unreadable = frozenset[str](), list[Incident](), list[Finding]()
        if not is_away:
            try:
                incidents = await current_incidents(redis, keys)
                if before_deploy:  # nothing runs yet
                    incidents = [one for one in incidents if one.kind is IncidentKind.REDIS_REFUSES]
                    is_release = not incidents
                released = await released_variables(redis, keys, is_release=is_release)
            except RedisError as error:
                failure = redis_failure(known.store.redis, error)
                unreadable = [fault(Topic.REDIS, f"its data cannot be read: it {failure.what}", failure.advice)]
        for finding in unknown_variable_findings(environ, released):
            yield finding
        if is_away:
            return
        for finding in unreadable:
            yield finding
        sections = _sections(redis, known, worker, web, before_deploy=before_deploy, is_release=is_release)
        for topic, section in sections:
            async for finding in guarded(topic, section):
                if not follows(finding, incidents):
                    yield finding
        for incident in incidents:
            yield incident_finding(incident)


def _sections(
    redis: Redis,
    known: WorkerSettings | WebSettings,
    worker: WorkerSettings | None,
    web: WebSettings | None,
    *,
    before_deploy: bool,
    is_release: bool,
) -> Iterator[tuple[Topic, AsyncIterator[Finding]]]:
    """Yield what is checked once Redis answers, and under which topic it is reported if that fails."""
    keys, institutions = known.store.keys, set[str]()
    if worker is not None:
        yield Topic.LOGIN, _service(redis, worker, web, institutions)
    if not before_deploy:
        yield Topic.WORKERS, _all(work_findings(redis, keys))
        yield Topic.PUSHES, _all(push_findings(redis, keys, institutions))
        if web is not None:
            yield Topic.WEB, front_findings(web, web.alerts.public_url)
            if web.oidc is not None:
                yield Topic.DASHBOARD, _all(provider_findings(redis, keys))
    yield Topic.ATTENTION, _all(waiting_findings(redis, keys))
    may_migrate = is_release and worker is not None
    yield Topic.ARCHIVE, _all(archive_findings(redis, keys, known.archive, may_migrate=may_migrate))
    yield Topic.ALERTS, _all(alert_findings(redis, keys, known.alerts))


async def _all(findings: Awaitable[Iterable[Finding]]) -> AsyncIterator[Finding]:
    for finding in await findings:
        yield finding


async def _service(
    redis: Redis, worker: WorkerSettings, web: WebSettings | None, institutions: set[str]
) -> AsyncIterator[Finding]:
    """Check the service; add the institutions whose queue was asked for to ``institutions``."""
    from callkeeper.app.doctor.service_account import service_findings  # noqa: PLC0415  (of the extra worker)

    named = worker.named_institutions() | (web.named_institutions() if web is not None else {})
    async for finding in service_findings(redis, worker, named):
        if finding.topic is Topic.QUEUE:
            institutions.add(finding.about)
        yield finding

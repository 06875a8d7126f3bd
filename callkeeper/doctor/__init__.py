"""Checks an installation: one finding per line, each fault with its remedy.

A check comes after those that it depends on. docs/operations.md has a section for every `Topic`.
"""

from collections.abc import AsyncIterator, Mapping
from typing import TypeVar

from redis.asyncio import Redis

from callkeeper.connections import worker_redis
from callkeeper.doctor.alert_targets import alert_findings
from callkeeper.doctor.archive_findings import archive_findings
from callkeeper.doctor.configuration import (
    ProcessKind,
    extra_findings,
    released_variables,
    rules_findings,
    settings_findings,
    unknown_variable_findings,
)
from callkeeper.doctor.finding import Finding, Severity, Topic
from callkeeper.doctor.pushes import front_findings, push_findings
from callkeeper.doctor.redis_server import store_findings
from callkeeper.doctor.work import waiting_findings, work_findings
from callkeeper.environment import SettingsWrong
from callkeeper.settings import WebSettings, WorkerSettings
from calls.store.keys import Keys

__all__ = ["Finding", "ProcessKind", "Severity", "Topic", "examine"]

S = TypeVar("S", WebSettings, WorkerSettings)


async def examine(
    environ: Mapping[str, str], *, before_deploy: bool = False, only: ProcessKind | None = None
) -> AsyncIterator[Finding]:
    """Check everything, except what depends on something that has a fault.

    Args:
        environ: The settings of web and worker together, or of ``only`` one of them.
        before_deploy: Leave out what runs only after a deployment: processes, due calls, pushes, the public address.
        only: Check only what this process needs, for environments with the settings of one process.
    """
    for finding in settings_findings(environ, only):
        yield finding
    worker = _loaded(WorkerSettings, environ) if only != "web" else None
    web = _loaded(WebSettings, environ) if only != "worker" else None
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
        is_away = any(finding.topic is Topic.REDIS and finding.severity is Severity.FAULT for finding in store)
        keys = known.store.keys
        takes_writes = not any(finding.topic is Topic.REDIS_WRITES for finding in store)
        is_release = before_deploy and takes_writes
        released = frozenset() if is_away else await released_variables(redis, keys, is_release=is_release)
        for finding in unknown_variable_findings(environ, released):
            yield finding
        if is_away:
            return
        institutions: set[str] = set()
        if worker is not None:
            from callkeeper.doctor.service_account import service_findings  # noqa: PLC0415  (of the extra worker)

            named = worker.named_institutions() | (web.named_institutions() if web is not None else {})
            async for finding in service_findings(redis, worker, named):
                if finding.topic is Topic.QUEUE:
                    institutions.add(finding.about)
                yield finding
        if not before_deploy:
            async for finding in _running(redis, known.store.keys, institutions, web):
                if takes_writes or finding.topic not in {Topic.WEB, Topic.WORKERS}:  # or else none can report
                    yield finding
        for finding in await waiting_findings(redis, known.store.keys):
            yield finding
        for finding in await archive_findings(
            redis, known.store.keys, known.archive, may_migrate=is_release and worker is not None
        ):
            yield finding
        for finding in await alert_findings(redis, known.store.keys, known.alerts):
            yield finding


def _loaded(section: type[S], environ: Mapping[str, str]) -> S | None:
    try:
        return section.load(environ)
    except SettingsWrong:
        return None


async def _running(
    redis: "Redis", keys: Keys, institutions: set[str], web: WebSettings | None
) -> AsyncIterator[Finding]:
    for finding in await work_findings(redis, keys):
        yield finding
    for finding in await push_findings(redis, keys, institutions):
        yield finding
    if web is not None:
        async for finding in front_findings(web, web.public_url):
            yield finding

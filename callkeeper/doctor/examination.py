"""The whole examination, in the order in which one thing needs the other."""

from collections.abc import AsyncIterator, Mapping

from redis.asyncio import Redis

from callkeeper.connections import worker_redis
from callkeeper.doctor.configuration import rules_findings, settings_findings
from callkeeper.doctor.finding import Finding, State, Topic
from callkeeper.doctor.front import front_findings
from callkeeper.doctor.pushes import push_findings
from callkeeper.doctor.service import service_findings
from callkeeper.doctor.store import store_findings
from callkeeper.doctor.work import waiting_findings, work_findings
from callkeeper.environment import SettingsWrong
from callkeeper.named_institutions import Named, named_by_web, named_by_worker
from callkeeper.settings import WebSettings, WorkerSettings


async def examine(environ: Mapping[str, str], *, before_deploy: bool = False) -> AsyncIterator[Finding]:
    """Look at everything that can be looked at; what depends on a fault is left out.

    Args:
        environ: The settings of web and worker together.
        before_deploy: Leave out what runs only after a deployment: processes, due calls, pushes, the public address.
    """
    for finding in settings_findings(environ):
        yield finding
    try:
        settings = WorkerSettings.load(environ)
    except SettingsWrong:
        return
    for finding in rules_findings(settings):
        yield finding
    async with worker_redis(settings.store.redis) as redis:
        store = await store_findings(redis, settings.store.redis)
        for finding in store:
            yield finding
        if any(finding.topic is Topic.REDIS and finding.state is State.FAULT for finding in store):
            return
        institutions: set[str] = set()
        async for finding in service_findings(redis, settings, _named(settings, environ)):
            if finding.topic is Topic.QUEUE:
                institutions.add(finding.about)
            yield finding
        if not before_deploy:
            async for finding in _running(redis, settings, institutions, environ):
                yield finding
        for finding in await waiting_findings(redis, settings.store.keys):
            yield finding


def _named(settings: WorkerSettings, environ: Mapping[str, str]) -> Named:
    """Return the institutions that settings name, also those of the web process where its settings can be read."""
    try:
        return {**named_by_worker(settings), **named_by_web(WebSettings.load(environ))}
    except SettingsWrong:
        return named_by_worker(settings)


async def _running(
    redis: "Redis", settings: WorkerSettings, institutions: set[str], environ: Mapping[str, str]
) -> AsyncIterator[Finding]:
    keys = settings.store.keys
    for finding in await work_findings(redis, keys):
        yield finding
    for finding in await push_findings(redis, keys, institutions):
        yield finding
    try:
        web = WebSettings.load(environ)
    except SettingsWrong:
        return
    async for finding in front_findings(web, web.public_url):
        yield finding

"""Checks pushes, and the web process from outside: whether pushes arrive, why they are refused, what web answers.

A wrong push header shows only in the count of refused pushes. An hour with refused pushes and no accepted one is a
fault.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec
from redis.asyncio import Redis

from callkeeper.app.doctor.finding import OUTSIDE, Finding, Topic, fault, ok, warning
from callkeeper.app.redis_query import redis_now
from callkeeper.app.settings import WebSettings
from callkeeper.calls.claimed_item import instant
from callkeeper.calls.metrics import catalogue
from callkeeper.calls.metrics.signals import LastCounted
from callkeeper.calls.metrics.snapshot import FigureReader, Snapshot
from callkeeper.calls.store.in_bytes import RedisInBytes, in_bytes
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.push_intake import DOCTOR, EventEntry
from callkeeper.service.network_failure import network_failure

if TYPE_CHECKING:
    import httpx

_HOUR = timedelta(hours=1)

NEWEST = 5000
"""Number of events that are searched for the last one of each institution. Older ones are known by when they counted."""


async def push_findings(redis: Redis, keys: Keys, institutions: Iterable[str]) -> list[Finding]:
    """Check the last hour's pushes, and the last push and sample of each institution."""
    client = in_bytes(redis)
    now = await redis_now(redis)
    minutes = [minute.figures for minute in await FigureReader(redis, keys=keys).minutes(now)]
    events = await _newest_events(client, keys)
    counted = LastCounted.parse(await client.hgetall(keys.counted))
    last = _last_pushes(events)
    found = _hour(minutes, _taken(minutes, events, now), has_ever=bool(events))
    for key in sorted(institutions):
        sample = await client.get(keys.sample(key))
        pushed_at = last.get(key) or counted.at(catalogue.CALLS_PUSHED, key, "came")
        found.append(_institution(key, pushed_at, sample, now))
    return found


async def _newest_events(client: RedisInBytes, keys: Keys) -> list[tuple[datetime, EventEntry]]:
    """Return the newest events and when they arrived, newest first, without our own samples."""
    stored = await client.zrange(keys.events, 0, NEWEST - 1, desc=True, withscores=True)
    events = ((instant(at_ms), msgspec.json.decode(event, type=EventEntry)) for event, at_ms in stored)
    return [(at, event) for at, event in events if event.institution_key != DOCTOR]


def _taken(minutes: list[Snapshot], events: list[tuple[datetime, EventEntry]], now: datetime) -> int:
    """Return the number of events accepted in the last hour, from the log, or from the figures if that is too short."""
    seen = sum(now - at < _HOUR for at, _ in events)
    return seen if seen < NEWEST // 2 else sum(minute.count(catalogue.PUSHES) for minute in minutes)


def _last_pushes(events: list[tuple[datetime, EventEntry]]) -> dict[str, datetime]:
    """Return when each institution's last real push arrived."""
    last: dict[str, datetime] = {}
    for at, event in events:
        if not event.is_test:
            last.setdefault(event.institution_key, at)
    return last


def _hour(minutes: list[Snapshot], taken: int, *, has_ever: bool) -> list[Finding]:
    refused = sum((minute.by(catalogue.PUSHES_REFUSED, "reason") for minute in minutes), Counter[str]())
    found = sum((minute.by(catalogue.CALLS_FOUND, "by") for minute in minutes), Counter[str]())
    if refused:
        return list(_refused(refused, taken))
    if not taken and found["queue"]:
        detail = f"none in the last hour, but {found['queue']} calls were found by the queue"
        remedy = (
            "look at the attempts in the dashboard (Settings, Push Notifications): the address, and what it answered"
        )
        return [warning(Topic.PUSHES, detail, remedy)]
    if not taken and not has_ever:
        remedy = "register https://<your host>/push in the dashboard (Settings, Push Notifications) and send a sample"
        return [warning(Topic.PUSHES, "none has come yet", remedy)]
    return [ok(Topic.PUSHES, f"{taken} accepted in the last hour, none refused")]


def _refused(refused: Counter[str], taken: int) -> Iterator[Finding]:
    """Describe each reason: a stranger who guesses must not hide pushes that were lost."""
    strangers, lost = refused.pop("credentials", 0), refused.pop("not_recorded", 0)
    if strangers:
        detail = f"{strangers} refused in the last hour for a wrong or missing header, {taken or 'none'} accepted"
        same = "copy CALLKEEPER_PUSH_HEADERS exactly into the dashboard (Settings, Push Notifications)"
        if taken:
            yield warning(Topic.PUSHES, detail, f"a stranger, or one institution's dashboard is wrong: {same}")
        else:
            yield fault(Topic.PUSHES, detail, f"{same}, and send a sample from there")
    if lost:
        detail = f"{lost} answered with 503 in the last hour: Redis did not confirm them"
        yield warning(Topic.PUSHES, detail, "see the lines about Redis; their calls were found by the queue")
    if refused:
        why = ", ".join(f"{count} {reason}" for reason, count in sorted(refused.items()))
        yield warning(Topic.PUSHES, f"refused in the last hour: {why}", "see the log events push_refused")


def _institution(key: str, last: datetime | None, sample: bytes | None, now: datetime) -> Finding:
    sampled = instant(int(sample)) if sample else None
    if last is None and sampled is None:
        remedy = "register the address and the header in its dashboard, and send a sample from there"
        return warning(Topic.PUSHES, "neither a push nor a sample has come", remedy, about=key)
    return ok(Topic.PUSHES, f"last push {_ago(last, now)}, last sample {_ago(sampled, now)}", about=key)


def _ago(at: datetime | None, now: datetime) -> str:
    """Say how long ago something was, roughly."""
    if at is None:
        return "never"
    passed_s = max(0.0, (now - at).total_seconds())
    for unit_s, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if passed_s >= unit_s:
            return f"{passed_s / unit_s:.0f} {unit} ago"
    return f"{passed_s:.0f} s ago"


_WITHIN_S = 10.0
_SAMPLE = {"Type": "CallStart", "VoiceId": "doctor", "InstitutionKey": DOCTOR, "IsTest": True}


async def front_findings(settings: WebSettings, url: str | None) -> AsyncIterator[Finding]:
    """Check the web process at its public address; without that setting, report only what is missing."""
    if url is None:
        yield _dashboard_unseen(settings)
        return
    import httpx  # noqa: PLC0415  (only this check needs it)

    async with httpx.AsyncClient(trust_env=False, timeout=_WITHIN_S, base_url=url) as client:
        try:
            yield _readiness(url, await client.get("/readyz"))
            yield await _push_header(client, settings)
            yield await _dashboard(client, settings)
        except httpx.HTTPError as error:
            remedy = "check the address, its certificate, and that the platform routes it to the web process"
            yield fault(Topic.WEB, f"{url} cannot be reached: {network_failure(error)}", remedy, about=OUTSIDE)


def _readiness(url: str, ready: "httpx.Response") -> Finding:
    if ready.status_code == 200:
        return ok(Topic.WEB, f"{url} is ready", about=OUTSIDE)
    remedy = "503: it cannot reach Redis; anything else: something else answers at this address"
    return fault(Topic.WEB, f"{url}/readyz answers {ready.status_code}", remedy, about=OUTSIDE)


async def _push_header(client: "httpx.AsyncClient", settings: WebSettings) -> Finding:
    """Send a sample with the headers of these settings, which the running process must accept."""
    headers = {name: value.reveal() for name, value in settings.push_headers}
    answer = await client.post("/push", json=_SAMPLE, headers=headers)
    if answer.status_code == 202:
        return ok(Topic.PUSHES, "a sample with our headers was accepted", about=OUTSIDE)
    if answer.status_code in {401, 429}:  # 429: too many wrong headers from this address
        remedy = "restart the web process: it runs with another CALLKEEPER_PUSH_HEADERS than these settings"
        return fault(Topic.PUSHES, "a sample with our headers was refused", remedy, about=OUTSIDE)
    remedy = "see the lines about Redis and the log of the web process"
    return fault(Topic.PUSHES, f"a sample was answered with {answer.status_code}", remedy, about=OUTSIDE)


def _dashboard_unseen(settings: WebSettings) -> Finding:
    if not settings.has_pages:
        return _unserved()
    return ok(Topic.DASHBOARD, "served at /rq; set CALLKEEPER_PUBLIC_URL to check it")


def _unserved() -> Finding:
    remedy = "set CALLKEEPER_OIDC_ISSUER"
    return warning(Topic.DASHBOARD, "not served: people have the command line only", remedy)


async def _dashboard(client: "httpx.AsyncClient", settings: WebSettings) -> Finding:
    if settings.has_login_page:
        status = (await client.get("/login")).status_code
        if status == 200:
            return ok(Topic.DASHBOARD, "people can log in at /login")
        return fault(Topic.DASHBOARD, f"/login answers {status}", "restart the web process with these settings")
    if settings.admin is None:
        return _unserved()
    login = (settings.admin.user, settings.admin.password.reveal())
    answer = await client.get("/rq/", auth=login, follow_redirects=True)
    if answer.status_code == 200:
        return ok(Topic.DASHBOARD, "/rq can be reached with CALLKEEPER_ADMIN")
    remedy = "restart the web process with these settings" if answer.status_code == 401 else "see its log"
    return fault(Topic.DASHBOARD, f"/rq answers {answer.status_code}", remedy)

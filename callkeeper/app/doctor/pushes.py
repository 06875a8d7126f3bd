"""Checks pushes, and the web process from outside: whether pushes arrive, why they are refused, what web answers.

A wrong push header shows only in the count of refused pushes. An hour with refused pushes and no accepted one is a
fault.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from redis.asyncio import Redis

from callkeeper.app.doctor.finding import OUTSIDE, Finding, Topic, fault, ok, warning
from callkeeper.app.redis_query import redis_now
from callkeeper.app.settings import WebSettings
from callkeeper.calls.claimed_item import instant
from callkeeper.calls.metrics import catalogue
from callkeeper.calls.metrics.signals import LastCounted
from callkeeper.calls.metrics.snapshot import FigureReader, Snapshot
from callkeeper.calls.store.in_bytes import in_bytes
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.push_intake import DOCTOR
from callkeeper.service.network_failure import network_failure

if TYPE_CHECKING:
    import httpx

_OURS = ("doctor",)
"""How the doctor's own samples are counted."""


async def push_findings(redis: Redis, keys: Keys, institutions: Iterable[str]) -> list[Finding]:
    """Check the last hour's pushes, and the last push and sample of each institution."""
    client = in_bytes(redis)
    now = await redis_now(redis)
    minutes = [minute.figures for minute in await FigureReader(redis, keys=keys).minutes(now)]
    counted = LastCounted.parse(await client.hgetall(keys.counted))
    found = _hour(minutes, has_ever=any(labels != _OURS for labels, _, _ in counted.rows(catalogue.PUSHES)))
    for key in sorted(institutions):
        sample = await client.get(keys.sample(key))
        found.append(_institution(key, counted.at(catalogue.CALLS_PUSHED, key, "came"), sample, now))
    return found


def _hour(minutes: list[Snapshot], *, has_ever: bool) -> list[Finding]:
    refused = sum((minute.by(catalogue.PUSHES_REFUSED, "reason") for minute in minutes), Counter[str]())
    taken = sum(n for minute in minutes for labels, n in minute.rows(catalogue.PUSHES) if labels != _OURS)
    if refused:
        return list(_refused(refused, taken))
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
    return ok(Topic.DASHBOARD, "people log in with CALLKEEPER_ADMIN, which is for emergencies")

"""What can be found from outside, at the public address: readiness, the push header, the dashboard's login."""

from collections.abc import AsyncIterator

import httpx

from callkeeper.doctor.finding import Finding, Topic, fault, ok, warning
from callkeeper.doctor.pushes import NOBODY
from callkeeper.settings import WebSettings

_WITHIN_S = 10.0
_SAMPLE = {"Type": "CallStart", "VoiceId": "doctor", "InstitutionKey": NOBODY, "IsTest": True}


async def front_findings(settings: WebSettings, url: str | None) -> AsyncIterator[Finding]:
    """Look at the web process as the service and people reach it; without its address, only say what is missing."""
    if url is None:
        yield _dashboard_unseen(settings)
        return
    async with httpx.AsyncClient(trust_env=False, timeout=_WITHIN_S, base_url=url) as client:
        try:
            ready = await client.get("/readyz")
        except httpx.HTTPError as error:
            remedy = "check the address, its certificate, and that the platform routes it to the web process"
            yield fault(Topic.WEB, f"{url} cannot be reached ({type(error).__name__})", remedy, about="from outside")
            return
        yield _readiness(url, ready)
        yield await _push_header(client, settings)
        yield await _dashboard(client, settings)


def _readiness(url: str, ready: httpx.Response) -> Finding:
    if ready.status_code == 200:
        return ok(Topic.WEB, f"{url} is ready", about="from outside")
    remedy = "503: it cannot reach Redis; anything else: something else answers at this address"
    return fault(Topic.WEB, f"{url}/readyz answers {ready.status_code}", remedy, about="from outside")


async def _push_header(client: httpx.AsyncClient, settings: WebSettings) -> Finding:
    """Send a sample with the headers of these settings: the running process has to know them."""
    headers = {name: value.reveal() for name, value in settings.push_headers}
    answer = await client.post("/push", json=_SAMPLE, headers=headers)
    if answer.status_code == 202:
        return ok(Topic.PUSHES, "a sample with our headers was taken", about="from outside")
    if answer.status_code == 401:
        remedy = "restart the web process: it runs with another CALLKEEPER_PUSH_HEADERS than these settings"
        return fault(Topic.PUSHES, "a sample with our headers was refused", remedy, about="from outside")
    remedy = "see the lines about Redis and the log of the web process"
    return fault(Topic.PUSHES, f"a sample was answered with {answer.status_code}", remedy, about="from outside")


def _dashboard_unseen(settings: WebSettings) -> Finding:
    if settings.admin is None:
        return _unserved()
    return ok(Topic.DASHBOARD, "served at /rq; CALLKEEPER_PUBLIC_URL would have it looked at")


def _unserved() -> Finding:
    remedy = "set CALLKEEPER_ADMIN=user:password to have it"
    return warning(Topic.DASHBOARD, "not served: people have the command line only", remedy)


async def _dashboard(client: httpx.AsyncClient, settings: WebSettings) -> Finding:
    if settings.admin is None:
        return _unserved()
    login = httpx.BasicAuth(settings.admin.user, settings.admin.password.reveal())
    answer = await client.get("/rq/", auth=login, follow_redirects=True)
    if answer.status_code == 200:
        return ok(Topic.DASHBOARD, "/rq can be reached with CALLKEEPER_ADMIN")
    remedy = "restart the web process with these settings" if answer.status_code == 401 else "see its log"
    return fault(Topic.DASHBOARD, f"/rq answers {answer.status_code}", remedy)

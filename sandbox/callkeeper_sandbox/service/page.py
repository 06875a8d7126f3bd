"""The dashboard's page for push notifications, with the live calls and a panel to start some.

Spec: Events, rule 2 (attempts with status and body, sample events); the dashboard itself is not part of the interface.
"""

from collections.abc import Mapping
from importlib.resources import files
from urllib.parse import parse_qs, urlencode

import jinja2
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from callkeeper_sandbox.service import audit
from callkeeper_sandbox.service.effects import happen_now
from callkeeper_sandbox.service.push import EVENT_TYPES, Attempt
from callkeeper_sandbox.service.service import Sandbox
from callkeeper_sandbox.service.state import Call, Child, Kind, PushSettings
from callkeeper_sandbox.service.stories import DEEDS, STORIES, begin, by_hand

SHOWN_ATTEMPTS = 50
SHOWN_CALLS = 100

_TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("callkeeper_sandbox.service"), autoescape=True, undefined=jinja2.StrictUndefined
)
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
_STATIC = files("callkeeper_sandbox.service") / "static"
_FILES = {"sandbox.css": "text/css", "sandbox.js": "text/javascript"}
AFTER_S, ENDS_S = 20.0, 180.0
_MOST_S = 7200.0


def routes(sandbox: Sandbox) -> list[Route]:
    """Return the routes of the page, its forms and its files."""
    page = Page(sandbox)
    return [
        Route("/", page.show, methods=["GET"]),
        Route("/settings/{key}", page.save, methods=["POST"]),
        Route("/samples/{key}", page.send_sample, methods=["POST"]),
        Route("/calls", page.start_call, methods=["POST"]),
        Route("/calls/{id}/now", page.happen, methods=["POST"]),
        Route("/static/{name}", page.file, methods=["GET"]),
    ]


class Page:
    """The page and what its forms do."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    async def show(self, request: Request) -> Response:
        """Show settings, attempts and live calls; ``?watch`` reloads every three seconds."""
        self._sandbox.tick()
        html = _TEMPLATES.get_template("page.html").render(
            institutions=self._sandbox.world.state.institutions,
            event_types=EVENT_TYPES,
            attempts=self._attempts(),
            calls=self._live_calls(),
            summary=audit.summary(self._sandbox),
            now=self._sandbox.world.clock(),
            is_watching="watch" in request.query_params,
            started=request.query_params.get("started", ""),
            chosen=_chosen(request.query_params),
            stories=STORIES,
            deeds=DEEDS,
        )
        return HTMLResponse(html, headers={"content-security-policy": _POLICY, "cache-control": "no-store"})

    async def save(self, request: Request) -> Response:
        child = self._child(request)
        if child is None:
            return PlainTextResponse("no such institution", 404)
        form = await _form(request)
        child.push = PushSettings(form.get("url", "").strip(), form.get("headers", "").strip())
        return RedirectResponse("/", 303)

    async def send_sample(self, request: Request) -> Response:
        """Send a sample event to an institution's push address."""
        form = await _form(request)
        event_type = form.get("type", "")
        if self._child(request) is None or event_type not in EVENT_TYPES:
            return PlainTextResponse("no such institution or event type", 404)
        await self._sandbox.pusher.send_sample(request.path_params["key"], event_type)
        return RedirectResponse("/", 303)

    async def start_call(self, request: Request) -> Response:
        form = await _form(request)
        key, story = form.get("institution", ""), form.get("story", "")
        after_s, ends_s = _seconds(form.get("after")), _seconds(form.get("ends"))
        if key not in self._sandbox.world.state.institutions or story not in STORIES:
            return PlainTextResponse("no such institution or story", 404)
        if after_s is None or ends_s is None:
            return PlainTextResponse("seconds are numbers from 0 to 7200", 400)
        call = begin(self._sandbox, key, story, after_s=after_s, ends_s=ends_s)
        self._sandbox.tick()
        chosen = {"started": call.voice_id, "institution": key, "after": f"{after_s:g}", "ends": f"{ends_s:g}"}
        return RedirectResponse(f"/?{urlencode(chosen)}", 303)

    async def happen(self, request: Request) -> Response:
        kind = (await _form(request)).get("kind", "")
        call = self._sandbox.world.any_call(request.path_params["id"])
        if call is None or kind not in DEEDS:
            return PlainTextResponse("no such call or happening", 404)
        happen_now(self._sandbox.world, call, by_hand(self._sandbox, call, Kind(kind)))
        self._sandbox.tick()
        return RedirectResponse("/#calls", 303)

    async def file(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _FILES:
            return PlainTextResponse("no such file", 404)
        return Response((_STATIC / name).read_bytes(), media_type=_FILES[name], headers={"cache-control": "no-cache"})

    def _child(self, request: Request) -> Child | None:
        return self._sandbox.world.state.institutions.get(request.path_params["key"])

    def _attempts(self) -> list[Attempt]:
        attempts = self._sandbox.pusher.attempts
        return [attempts[-number] for number in range(1, min(len(attempts), SHOWN_ATTEMPTS) + 1)]

    def _live_calls(self) -> list[Call]:
        calls = [call for live in self._sandbox.world.live.values() for call in live.values()]
        return sorted(calls, key=lambda call: call.started_at, reverse=True)[:SHOWN_CALLS]


def _seconds(text: str | None) -> float | None:
    try:
        seconds = float(text or "")
    except ValueError:
        return None
    return seconds if 0 <= seconds <= _MOST_S else None


def _chosen(query: Mapping[str, str]) -> dict[str, str]:
    """Return the values of the panel: those of the last call."""
    shown = {"institution": "", "after": f"{AFTER_S:g}", "ends": f"{ENDS_S:g}"}
    return {name: query.get(name, usual) for name, usual in shown.items()}


async def _form(request: Request) -> dict[str, str]:
    body = (await request.body()).decode("utf-8", "replace")
    return {name: values[0] for name, values in parse_qs(body).items()}


class SameOrigin:
    """Refuses requests that a browser sends for another site, so that no web page can control the sandbox."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on unless its origin is another host."""
        if scope["type"] == "http" and _is_foreign(Request(scope)):
            await PlainTextResponse("another site may not do this", 403)(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _is_foreign(request: Request) -> bool:
    """Tell whether another site sent a request. A link to a page is harmless."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site not in {None, "same-origin", "none"} and request.method not in {"GET", "HEAD"}:
        return True
    return origin is not None and origin != f"{request.url.scheme}://{request.headers.get('host', '')}"

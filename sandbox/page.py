"""The dashboard's page for push notifications, with the live calls: for people who want to see what is going on.

Spec: Events, rule 2 (attempts with status and body, sample events); the dashboard itself is not part of the interface.
"""

from urllib.parse import parse_qs

import jinja2
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from sandbox import audit
from sandbox.push import EVENT_TYPES, Attempt
from sandbox.service import Sandbox
from sandbox.state import Call, Child, PushSettings

SHOWN_ATTEMPTS = 50
SHOWN_CALLS = 100

_TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("sandbox"), autoescape=True, undefined=jinja2.StrictUndefined
)
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"


def routes(sandbox: Sandbox) -> list[Route]:
    """Return the routes of the page and its two forms."""
    page = Page(sandbox)
    return [
        Route("/", page.show, methods=["GET"]),
        Route("/settings/{key}", page.save, methods=["POST"]),
        Route("/samples/{key}", page.send_sample, methods=["POST"]),
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
        )
        return HTMLResponse(html, headers={"content-security-policy": _POLICY, "cache-control": "no-store"})

    async def save(self, request: Request) -> Response:
        """Save an institution's push address and headers."""
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

    def _child(self, request: Request) -> Child | None:
        return self._sandbox.world.state.institutions.get(request.path_params["key"])

    def _attempts(self) -> list[Attempt]:
        attempts = self._sandbox.pusher.attempts
        return [attempts[-number] for number in range(1, min(len(attempts), SHOWN_ATTEMPTS) + 1)]

    def _live_calls(self) -> list[Call]:
        calls = [call for live in self._sandbox.world.live.values() for call in live.values()]
        return sorted(calls, key=lambda call: call.started_at, reverse=True)[:SHOWN_CALLS]


async def _form(request: Request) -> dict[str, str]:
    body = (await request.body()).decode("utf-8", "replace")
    return {name: values[0] for name, values in parse_qs(body).items()}


class SameOrigin:
    """Refuses what a browser sends on behalf of another site, so that no web page can steer the stand-in."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through unless it has an origin that is not its own host."""
        if scope["type"] == "http" and _is_foreign(Request(scope)):
            await PlainTextResponse("another site may not do this", 403)(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _is_foreign(request: Request) -> bool:
    origin = request.headers.get("origin")
    return origin is not None and origin != f"{request.url.scheme}://{request.headers.get('host', '')}"

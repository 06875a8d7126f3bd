"""The stand-in as an ASGI application."""

from starlette.applications import Starlette
from starlette.middleware import Middleware

from callkeeper_sandbox.service import control, endpoint, page
from callkeeper_sandbox.service.service import Sandbox


def create_app(sandbox: Sandbox) -> Starlette:
    """Combine the interface of the service, the control interface and the page."""
    return Starlette(
        routes=[*endpoint.routes(sandbox), *control.routes(sandbox), *page.routes(sandbox)],
        middleware=[Middleware(page.SameOrigin)],
    )

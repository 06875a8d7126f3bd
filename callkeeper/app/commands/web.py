"""``callkeeper web``: the web process."""

import os

import click
from msgspec.structs import replace

from callkeeper.app.process import collect_seldom, prepare, report_unstarted, telemetry_of
from callkeeper.app.serving import WebServer, every_address, listen
from callkeeper.app.settings import WebSettings
from callkeeper.app.terminal import Failed
from callkeeper.app.web_app import web_app
from callkeeper.calls.rules import RulesError


@click.command()
@click.option("--host", help="Address to listen on. Default: 127.0.0.1, or every address where a platform sets $PORT.")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Port to listen on, 0 for any free one. Default: $PORT or 8000."
)
def web(host: str | None, port: int | None) -> None:
    """Run the web process: push events, health checks, the desk, the board and the RQ dashboard."""
    settings, log = prepare(WebSettings, "web")
    if port is not None:
        settings = replace(settings, port=port)
    # A platform gives the port, and its router connects from outside.
    host = host or (every_address() if os.environ.get("PORT") else "127.0.0.1")
    try:
        listener = listen(host, settings.port)
    except OSError as error:
        raise click.ClickException(f"cannot listen on {host}:{settings.port}: {error.strerror}") from None
    try:
        app = web_app(settings, log)
    except RulesError as error:
        report_unstarted(settings.store, "web")
        raise Failed(*error.lines) from None
    with telemetry_of(settings, "web", log), listener:
        collect_seldom()
        if not WebServer(app, listener, log, leave=app.state.leave).serve_until_stopped():
            raise click.ClickException("the web process could not be started")

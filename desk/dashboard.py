"""The RQ dashboard: rq-dashboard's pages, made safe to keep open in production.

What its release 0.9 does and a bank cannot have, and where it is mended:

- it unpickles whatever lies in Redis: `desk.readable_jobs`
- ``GET /requeue/<queue>`` changes state: a route that takes POST takes nothing else
- it puts descriptions, results and tracebacks into its pages as HTML: its templates are made to escape them
- it shows the Redis URL and opens a connection per request: it gets an address without credentials, and our connection
- a foreign page can press its buttons: a change needs the token that stands in the page
- its script stands inside the page, and its templates are compiled by ``eval``: the one script is named by a nonce, what
  ``eval`` is given comes from our own templates

The login stands in front of it: `desk.admin`.
"""

import re
import secrets
from importlib.resources import files
from typing import Any, cast

from a2wsgi import WSGIMiddleware
from flask import Flask, Response, abort, g, request
from flask.templating import DispatchingJinjaLoader
from jinja2 import Environment
from redis import Redis
from redis.exceptions import RedisError, ResponseError
from rq.exceptions import NoSuchJobError
from rq.serializers import JSONSerializer
from rq_dashboard import web as rq_pages
from starlette.types import ASGIApp

from desk.forms import HEADER, FormTokens
from desk.readable_jobs import ReadableJob, ReadableQueue, ReadableWorkers, requeue_job

_THREADS = 4
_MAX_BODY = 64 * 1024

_UNESCAPED = re.compile(r"<%=(?!\s*\$\('<div/>'\))")
"""Underscore's tag for raw output, but for the two places that escape by hand."""

_JOB_ID = re.compile(r"[A-Za-z0-9_-]{1,200}")

_SCRIPT = '<script type="text/javascript">'
_NAMED_SCRIPT = """<script nonce="{{ g.nonce }}">
$.ajaxPrefilter(function (_options, _original, request) {
    request.setRequestHeader("%s", {{ form_token()|tojson }});
});
"""

_POLICY = (
    "default-src 'none'; script-src 'self' 'nonce-{nonce}' 'unsafe-eval'; style-src 'self'; "
    "style-src-attr 'unsafe-inline'; img-src 'self' data:; font-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)


def dashboard(connection: "Redis", *, address: str, tokens: FormTokens) -> ASGIApp:
    """Build the dashboard's pages, to be mounted behind the login.

    Args:
        connection: Answers in bytes, as RQ needs it.
        address: What the pages show as the Redis address; without credentials.
        tokens: Of the login; a change needs one.
    """
    _teach_to_read_json()
    app = _Pages(connection)
    app.config.update(RQ_DASHBOARD_REDIS_URL=(address,), MAX_CONTENT_LENGTH=_MAX_BODY)
    app.before_request(_name_the_script)
    app.before_request(_only_what_exists)
    app.before_request(_change_by_post_only)
    app.before_request(lambda: _change_by_token_only(tokens))
    app.after_request(_add_policy)
    app.jinja_env.globals["form_token"] = tokens.issue
    app.register_error_handler(NoSuchJobError, lambda _error: ("No such job.\n", 404))
    app.register_error_handler(RedisError, _on_redis)
    app.register_blueprint(rq_pages.blueprint)
    wsgi: Any = app  # a2wsgi and Flask each type WSGI their own way
    return cast("ASGIApp", WSGIMiddleware(wsgi, workers=_THREADS))


def _teach_to_read_json() -> None:
    """Give the pages' module our readers; it has no parameter for anything but the serializer of some routes."""
    rq_pages.config.serializer = JSONSerializer
    rq_pages.Job = ReadableJob
    rq_pages.Queue = ReadableQueue
    rq_pages.Worker = ReadableWorkers
    rq_pages.requeue_job = requeue_job


class _Pages(Flask):
    """The Flask application around the pages' blueprint."""

    def __init__(self, connection: "Redis") -> None:
        super().__init__(__name__, static_folder=str(files("rq_dashboard") / "static"), template_folder=None)
        self._connection = connection

    @property
    def redis_conn(self) -> "Redis":
        """The connection that every request uses."""
        return self._connection

    @redis_conn.setter
    def redis_conn(self, _opened_per_request: object) -> None:
        """Ignore the connection that the blueprint would open from the address; it never gets used."""

    def create_global_jinja_loader(self) -> DispatchingJinjaLoader:
        """Return the loader of the pages' templates."""
        return _EscapingLoader(self)


class _EscapingLoader(DispatchingJinjaLoader):
    """Loads the pages' templates so that what a job says is shown as text."""

    def get_source(self, environment: Environment, template: str) -> tuple[str, str | None, Any]:
        """Return a template's source with every raw output tag made an escaping one, and its script named."""
        source, filename, is_current = super().get_source(environment, template)
        return _UNESCAPED.sub("<%-", source).replace(_SCRIPT, _NAMED_SCRIPT % HEADER), filename, is_current


def _only_what_exists() -> None:
    """Answer 404 for another Redis than ours, and for what is no job's id, where the blueprint would raise."""
    parts = request.view_args or {}
    if parts.get("instance_number") or not _JOB_ID.fullmatch(parts.get("job_id", "x")):
        abort(404)


def _on_redis(error: RedisError) -> tuple[str, int]:
    """Tell an empty queue, which has no key to be compacted, from a Redis that is away."""
    if isinstance(error, ResponseError) and "no such key" in str(error):
        return "No such queue, or an empty one.\n", 404
    return "Redis does not answer.\n", 503


def _change_by_post_only() -> None:
    """Answer 405 to any other method on a route that can change something."""
    if request.url_rule and "POST" in (request.url_rule.methods or ()) and request.method != "POST":
        abort(405)


def _change_by_token_only(tokens: FormTokens) -> None:
    """Answer 403 to a change without the token of a page."""
    if request.method == "POST" and not tokens.is_valid(request.headers.get(HEADER)):
        abort(403)


def _name_the_script() -> None:
    g.nonce = secrets.token_urlsafe(16)


def _add_policy(response: Response) -> Response:
    """Allow a page its one script and nothing else that is inline."""
    response.headers["Content-Security-Policy"] = _POLICY.format(nonce=g.nonce)
    return response

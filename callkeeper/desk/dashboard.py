"""The RQ dashboard: rq-dashboard's pages, read-only, made safe to keep open in production.

Weaknesses of its release 0.9, and what this module does about each:

- It unpickles job data from Redis. `callkeeper.desk.readable_jobs` reads JSON only.
- It writes the queue's name from the address into a script without escaping. Here only listed addresses reach its
  pages, and every value that templates write into scripts is encoded as JSON.
- It shows every queue and job in Redis. Here it has access to our queue only.
- It requeues and deletes jobs, some by GET. Here every route that changes something is refused, and its buttons are
  left out: ``callkeeper jobs`` does this.
- It writes descriptions, results and tracebacks into its pages as HTML. Its templates are changed to escape them.
- It shows the Redis URL and opens a connection per request. Here it gets an address without credentials, and our
  connection.
- Another site's page can link to a crafted address of it. Here such requests are refused.
- Its script is inside the page, and its templates are compiled by ``eval``. A nonce allows this one script, and
  ``eval`` gets only texts of the package's own files.
- It redirects to the host in the Host header. Here it never redirects.

The gate in front of it is `callkeeper.desk.access.authorization`.
"""

import re
import secrets
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final, cast

from a2wsgi import WSGIMiddleware
from flask import Flask, Response, abort, current_app, g, request
from flask.templating import DispatchingJinjaLoader
from jinja2 import Environment
from redis import Redis
from redis.exceptions import RedisError, ResponseError
from rq import Queue
from rq.exceptions import InvalidJobOperation, NoSuchJobError
from rq.serializers import JSONSerializer
from rq.worker import BaseWorker
from rq_dashboard import web as rq_pages
from starlette.types import ASGIApp

from callkeeper.calls.store.keys import QUEUE_NAME
from callkeeper.desk.readable_jobs import ReadableJob, ReadableQueue, readable_job, readable_workers

_THREADS = 4

_READ_ONLY: Final = "This page changes nothing. Use `callkeeper jobs requeue` or `callkeeper jobs delete`.\n"

_UNESCAPED = re.compile(r"<%=(?!\s*\$\('<div/>'\))")
"""Underscore's tag for raw output, but for the two places that escape by hand."""

_IN_SCRIPT = re.compile(r"""(['"]?)\{\{\s*([\w.]+)\s*\}\}\1""")
"""What a template writes into a script as it is, with the quotes around it."""

_PART_OF_ADDRESS: Final[Mapping[str, re.Pattern[str]]] = {
    "instance_number": re.compile(r"0"),
    "registry_name": re.compile(r"queued|scheduled|deferred|started|finished|failed|canceled"),
    "order": re.compile(r"asc|dsc"),
    "per_page": re.compile(r"[1-9][0-9]?|1[0-9]{2}|200"),
    "page": re.compile(r"[1-9][0-9]{0,5}"),
    "job_id": re.compile(r"[A-Za-z0-9_-]{1,200}"),
    "filename": re.compile(r"[A-Za-z0-9_./-]{1,100}"),
}
"""What each part of an address may be, beside the name of our queue. Anything else is 404."""

_OWN_QUEUE: Final = "CALLKEEPER_QUEUE"

_SCRIPT = '<script type="text/javascript">'
_NAMED_SCRIPT = """<script nonce="{{ g.nonce }}">
// A description of ours is a sentence: it is shown whole, on several lines.
$("script[name=job-row]").text((_n, row) => row.replace(" ellipsify", ""));
"""

_END_OF_HEAD: Final = "</head>"
_STYLED: Final = """<style nonce="{{ g.nonce }}">
p.intro { color: #666; }
.creation_date { white-space: nowrap; }
@media (prefers-color-scheme: dark) { :root { filter: invert(0.93) hue-rotate(180deg); } }
</style></head>"""
"""Texts that can be read; dark where the reader's system is, as the board: lightness is inverted, hues stay."""

_WHAT_IT_SAYS_OF_QUEUES: Final = re.compile(r"This list below contains all the registered queues.*?(?=</p>)", re.DOTALL)
_WHAT_JOBS_ARE: Final = "A job is a shift of a worker. Finished ones say what they did. The calls are on the board."

_NAVIGATION: Final = '<ul class="navbar-nav mr-auto">'
_TO_BOARD: Final = '<li class="nav-item"><a href="/board" class="nav-link">\u2039 Board</a></li>'

_INSTANCES: Final = '<div id="rq-instances-row">'
_HOW_TO_CHANGE: Final = '<span class="navbar-text mx-3">To requeue or delete jobs: <code>callkeeper jobs</code></span>'

_BUTTONS: Final = re.compile(
    r'<th class="narrow">Actions</th>|<td class="actions.*?</td>|'
    r'<(a|button)\b[^>]*"(?:requeue|delete|empty|compact)[\w-]*-btn".*?</\1>',
    re.DOTALL,
)
"""The buttons that change something, and the column of them."""

_OVERLAID: Final = 'class="fixed intro"'
"""A text of fixed height: on a phone the table would lie over its end."""

_ALL_QUEUED: Final = "This list below contains all the queued jobs on queue"
_ALL_OF_REGISTRY: Final = "These are the {{ registry_name }} jobs of queue"

_POLICY = (
    "default-src 'none'; script-src 'self' 'nonce-{nonce}' 'unsafe-eval'; style-src 'self' 'nonce-{nonce}'; "
    "style-src-attr 'unsafe-inline'; img-src 'self' data:; font-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)


def dashboard(connection: Redis, *, address: str, queue_name: str = QUEUE_NAME) -> ASGIApp:
    """Build the pages of one queue, to be mounted behind the login. ``address``, without credentials, is only shown."""
    wsgi: Any = pages(connection, address=address, queue_name=queue_name)  # two typings of WSGI
    return cast("ASGIApp", WSGIMiddleware(wsgi, workers=_THREADS))


def pages(connection: Redis, *, address: str, queue_name: str) -> Flask:
    """Build the Flask application that `dashboard` serves."""
    _replace_readers()
    app = _Pages(connection)
    app.config.update({"RQ_DASHBOARD_REDIS_URL": (address,), _OWN_QUEUE: queue_name})
    app.before_request(_name_the_script)
    app.before_request(_no_links_from_other_sites)
    app.before_request(_refuse_changes)
    app.before_request(_only_known_addresses)
    app.url_defaults(_newest_first)
    app.after_request(_add_policy)
    for is_gone in (NoSuchJobError, InvalidJobOperation):  # the latter: it was deleted while it was read
        app.register_error_handler(is_gone, lambda _error: ("No such job.\n", 404))
    app.register_error_handler(RedisError, _on_redis)
    app.register_error_handler(403, lambda _error: ("Open this page from the board, or type its address.\n", 403))
    app.register_error_handler(404, lambda _error: ("Not found.\n", 404))
    app.register_error_handler(405, lambda _error: (_READ_ONLY, 403))  # the gate audits each 403
    app.register_blueprint(rq_pages.blueprint)
    return app


def _replace_readers() -> None:
    """Give the pages' module our readers; it has no parameter for anything but the serializer of some routes."""
    rq_pages.config.serializer = JSONSerializer
    rq_pages.Job = _OwnJobs
    rq_pages.Queue = _OwnQueue
    rq_pages.Worker = _OwnWorkers
    rq_pages.from_url = lambda *_args, **_options: (None, None)  # it would open a connection for each request


def _own_queue() -> str:
    """Return the name of the queue that the pages may show."""
    name: str = current_app.config[_OWN_QUEUE]
    return name


class _OwnJobs:
    """The jobs of our queue."""

    @staticmethod
    def fetch(job_id: str, connection: Redis, serializer: object = None) -> ReadableJob:  # noqa: ARG004  (always JSON)
        """Read a job.

        Raises:
            NoSuchJobError: There is none, or it is another queue's.
        """
        return readable_job(connection, _own_queue(), job_id)


class _OwnQueue(ReadableQueue):
    """Our queue, the only one that is listed."""

    @classmethod
    def all(cls, connection: Redis | None = None, *_args: Any, **_options: Any) -> list[Queue]:
        return [cls(_own_queue(), connection=connection)]


class _OwnWorkers:
    """The workers of our queue."""

    @staticmethod
    def all(connection: Redis) -> list[BaseWorker]:
        """Return the workers that are registered for our queue."""
        return readable_workers(connection, _own_queue())


class _Pages(Flask):
    """The Flask application around the pages' blueprint."""

    def __init__(self, connection: Redis) -> None:
        super().__init__(__name__, static_folder=str(files("rq_dashboard") / "static"), template_folder=None)
        # Werkzeug would redirect an address with a slash too many or too few to whatever the Host header names.
        self.url_map.strict_slashes = self.url_map.merge_slashes = self.url_map.redirect_defaults = False
        self._connection = connection

    @property
    def redis_conn(self) -> Redis:
        """The connection that every request uses."""
        return self._connection

    @redis_conn.setter
    def redis_conn(self, _opened_per_request: object) -> None:
        """Ignore what the blueprint sets: it would connect to the address that the pages show."""

    def create_global_jinja_loader(self) -> DispatchingJinjaLoader:
        return _EscapingLoader(self)


class _EscapingLoader(DispatchingJinjaLoader):
    """Loads the pages' templates so that text of a job or an address is escaped."""

    def get_source(self, environment: Environment, template: str) -> tuple[str, str | None, Any]:
        """Return a template's source: raw output tags escape, scripts get JSON, what is inline has a nonce."""
        source, filename, is_current = super().get_source(environment, template)
        source = source.replace(_NAVIGATION, _NAVIGATION + _TO_BOARD).replace(_ALL_QUEUED, _ALL_OF_REGISTRY)
        source = source.replace(_OVERLAID, 'class="intro"').replace(_END_OF_HEAD, _STYLED)
        source = _WHAT_IT_SAYS_OF_QUEUES.sub(_WHAT_JOBS_ARE, source)
        source = _BUTTONS.sub("", source.replace(_INSTANCES, _HOW_TO_CHANGE + _INSTANCES))
        if template.endswith((".js", "/inline_js.html")):
            source = _IN_SCRIPT.sub(r"{{ \2|tojson }}", source)
        return _UNESCAPED.sub("<%-", source).replace(_SCRIPT, _NAMED_SCRIPT), filename, is_current


def _newest_first(_endpoint: str, parts: dict[str, Any]) -> None:
    """Let the table of queues lead to the newest jobs: the oldest of a registry may have expired, and are left out."""
    if parts.get("order") == "asc" and parts.get("page") == "1":  # the pages of an order that was chosen have a number
        parts["order"] = "dsc"


def _no_links_from_other_sites() -> None:
    """Answer 403 to a request that another site's page has started: its address could be crafted to do harm."""
    if request.headers.get("Sec-Fetch-Site", "none") not in {"same-origin", "none"}:
        abort(403)


def _refuse_changes() -> None:
    """Refuse routes that can change something, also by GET. Flask itself refuses other methods on the others."""
    accepted = (request.url_rule and request.url_rule.methods) or ()
    if not {"GET", "HEAD", "OPTIONS"}.issuperset(accepted):
        abort(405)


def _only_known_addresses() -> None:
    """Answer 404 unless every part of the address is one that exists."""
    parts = request.view_args or {}
    for name, value in parts.items():
        if name == "queue_name":
            parts[name] = value or _own_queue()  # the jobs page without a name is that of our queue
            is_known = parts[name] == _own_queue()
        else:
            is_known = _PART_OF_ADDRESS[name].fullmatch(str(value)) is not None
        if not is_known:
            abort(404)


def _on_redis(error: RedisError) -> tuple[str, int]:
    """Answer an error of Redis: it refuses, or is unreachable."""
    return ("Redis refused this.\n" if isinstance(error, ResponseError) else "Redis does not answer.\n"), 503


def _name_the_script() -> None:
    g.nonce = secrets.token_urlsafe(16)


def _add_policy(response: Response) -> Response:
    """Allow a page its one script, its one style and nothing else that is inline."""
    response.headers["Content-Security-Policy"] = _POLICY.format(nonce=g.nonce)
    return response

"""The RQ dashboard: rq-dashboard's own pages of our queue, read-only.

Listed addresses reach its pages, and nothing else: its other routes requeue and delete jobs, some by GET, and it writes
parts of an address into a script. Jobs are read as JSON, because RQ would unpickle them. It uses our connection, as it
knows neither sentinels nor TLS. It writes descriptions into its pages as HTML, so a nonce lets its one script run and
no other. The gate in front of it is `callkeeper.desk.access.authorization`.
"""

import re
import secrets
from importlib.resources import files
from typing import Any, Final, Self, cast

from a2wsgi import WSGIMiddleware
from flask import Flask, Response, abort, current_app, request
from redis import Redis
from redis.exceptions import RedisError
from rq import Queue, Worker
from rq.exceptions import InvalidJobOperation, NoSuchJobError
from rq.job import Job
from rq.serializers import JSONSerializer
from rq.worker import BaseWorker
from rq_dashboard import web as rq_pages
from starlette.types import ASGIApp

from callkeeper.calls.store.keys import QUEUE_NAME

_THREADS = 4
_OWN_QUEUE: Final = "CALLKEEPER_QUEUE"
_READ_ONLY: Final = "This page changes nothing. To change jobs, use the command `rq`: see docs/operations.md.\n"

_REGISTRY: Final = "(queued|scheduled|deferred|started|finished|failed|canceled)"
_PAGE: Final = f"{_REGISTRY}/([1-9][0-9]?|1[0-9]{{2}}|200)/(asc|dsc)/[1-9][0-9]{{0,5}}"
_ADDRESSES: Final = (
    "/",
    "/0/(view(/(queues|workers|jobs))?)?",
    f"/0/view/jobs/QUEUE/{_PAGE}",
    f"/0/data/jobs/QUEUE/{_PAGE}[.]json",
    r"/0/view/job/[A-Za-z0-9_-]{1,200}",
    r"/0/data/(queues|workers|job/[A-Za-z0-9_-]{1,200})[.]json",
    r"/static/[A-Za-z0-9_./-]{1,100}",
    "/favicon[.]ico",
)
"""The addresses that are answered, as patterns. ``QUEUE``: the name of our queue."""

_SCRIPT: Final = '<script type="text/javascript">'
_POLICY: Final = (
    "default-src 'none'; script-src 'self' 'nonce-{nonce}' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)


def dashboard(connection: Redis, *, address: str, queue_name: str = QUEUE_NAME) -> ASGIApp:
    """Build the pages of one queue, to be mounted behind the login. ``address``, without credentials, is only shown."""
    wsgi: Any = pages(connection, address=address, queue_name=queue_name)  # two typings of WSGI
    return cast("ASGIApp", WSGIMiddleware(wsgi, workers=_THREADS))


def pages(connection: Redis, *, address: str, queue_name: str) -> Flask:
    """Build the Flask application that `dashboard` serves."""
    rq_pages.config.serializer = JSONSerializer
    rq_pages.Job, rq_pages.Queue, rq_pages.Worker = _Job, _Queue, _Worker
    rq_pages.from_url = lambda *_args, **_options: (None, None)  # it would open a connection for each request
    known = [re.compile(pattern.replace("QUEUE", re.escape(queue_name))) for pattern in _ADDRESSES]

    def refuse() -> None:
        """Refuse what changes something, also by GET, and whatever address is not listed."""
        if request.method not in {"GET", "HEAD"}:
            abort(405)
        if not any(each.fullmatch(request.path) for each in known):
            abort(404)

    app = _Pages(connection)
    app.config |= {"RQ_DASHBOARD_REDIS_URL": (address,), "RQ_DASHBOARD_DISABLE_DELETE": True, _OWN_QUEUE: queue_name}
    app.before_request(refuse)
    app.after_request(_allow_one_script)
    for is_gone in (NoSuchJobError, InvalidJobOperation):  # the latter: it was deleted while it was read
        app.register_error_handler(is_gone, lambda _error: ("No such job.\n", 404))
    app.register_error_handler(RedisError, lambda _error: ("Redis does not answer.\n", 503))
    app.register_error_handler(404, lambda _error: ("Not found.\n", 404))
    app.register_error_handler(405, lambda _error: (_READ_ONLY, 403))  # the gate audits each 403
    app.register_blueprint(rq_pages.blueprint)
    return app


class _Job(Job):
    """A job of our queue, read as JSON."""

    def __init__(self, id: str | None = None, connection: Redis | None = None, serializer: Any = None) -> None:  # noqa: A002  (RQ's own name)
        super().__init__(id, connection, JSONSerializer)

    @classmethod
    def fetch(cls, id: str, connection: Redis | None = None, serializer: Any = None) -> Self:  # noqa: A002, ARG003  (RQ's own names)
        """Read a job.

        Raises:
            NoSuchJobError: There is none, its id is not one that RQ gives, or it is another queue's.
        """
        try:
            job = cast("Self", super().fetch(id, connection))
        except ValueError as error:
            raise NoSuchJobError from error
        if job.origin != current_app.config[_OWN_QUEUE]:
            raise NoSuchJobError
        return job


class _Queue(Queue):
    """Our queue, the only one that is listed."""

    job_class = _Job

    def __init__(self, name: str = "", *args: Any, **options: Any) -> None:
        super().__init__(name or current_app.config[_OWN_QUEUE], *args, **options)

    @classmethod
    def all(cls, connection: Redis | None = None, *_args: Any, **_options: Any) -> list[Queue]:
        return [cls(connection=connection)]


class _Worker(Worker):
    """The workers; their current jobs are read as JSON."""

    @classmethod
    def all(cls, connection: Redis | None = None, *_args: Any, **_options: Any) -> list[BaseWorker]:
        return super().all(connection, job_class=_Job, queue_class=_Queue, serializer=JSONSerializer)


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


def _allow_one_script(response: Response) -> Response:
    """Let a page run its own script and nothing else that is inline."""
    nonce = secrets.token_urlsafe(16)
    if response.mimetype == "text/html" and not response.direct_passthrough:
        text = response.get_data(as_text=True)
        response.set_data(text.replace(_SCRIPT, f'<script nonce="{nonce}">', 1))
    response.headers["Content-Security-Policy"] = _POLICY.format(nonce=nonce)
    return response

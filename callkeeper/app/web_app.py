"""The web process: the push endpoint, the desk and the pages for people in one Starlette application."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

from redis.asyncio import Redis
from redis.exceptions import RedisError
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from structlog.typing import FilteringBoundLogger

from callkeeper.app.acknowledgement_watch import AcknowledgementWatch
from callkeeper.app.alert_watch import alert_watch
from callkeeper.app.archive_reader import archived_calls
from callkeeper.app.connections import blocking_redis, feed_redis, receiver_redis, warn_of_redis
from callkeeper.app.logs import lines_lost
from callkeeper.app.middleware import Forwarded, PlainPath
from callkeeper.app.pages import hiding_key, pages
from callkeeper.app.process import leave_unless_migrated
from callkeeper.app.settings import WebSettings
from callkeeper.app.turns import Turns, room_for_others
from callkeeper.calls.metrics.counting import Figures
from callkeeper.calls.metrics.process_activity import Doing
from callkeeper.calls.metrics.redis_writer import Author, FigureWriter, Reporter
from callkeeper.calls.rules import RuleBook, load_rules
from callkeeper.calls.store.audit_log import AuditLog
from callkeeper.calls.store.cancelling import end
from callkeeper.calls.store.claims import Store
from callkeeper.calls.store.job_queue import Waker
from callkeeper.calls.store.pausing import PauseWatch
from callkeeper.calls.store.push_intake import Intake
from callkeeper.calls.store.queries import Queries
from callkeeper.desk.access.visitor import Auditor
from callkeeper.desk.browser_headers import EVERYWHERE, SafeHeaders
from callkeeper.desk.desk import Desk
from callkeeper.desk.stream import STREAMS_PER_TOKEN
from receiver.authentication import PushAuthentication
from receiver.health import health_routes
from receiver.push import PushCounting, PushEndpoint, utc_now

POLL_EVERY_S: Final = 15.0
"""Seconds between two checks whether the list of institutions is stored."""


def web_app(settings: WebSettings, log: FilteringBoundLogger) -> Starlette:
    """Build the application. It opens connections when they are first used, and closes them when it ends.

    Raises:
        callkeeper.calls.rules.RulesError: The rules have faults: nothing is started.
    """
    store = settings.store
    warn_of_redis(store.redis, log)
    redis, jobs = receiver_redis(store.redis), blocking_redis(store.redis)
    waker = Waker(jobs, keys=store.keys)
    figures, book = Figures(), load_rules(settings.rules)
    author = Author.here("web", rules=book.digest, settings=settings.digests())
    writer = FigureWriter(figures, author, keys=store.keys)
    writer.lines_lost = lines_lost
    migrated = partial(leave_unless_migrated, keys=store.keys, log=log)
    reporter = Reporter(blocking_redis(store.redis), writer, also=migrated)
    intake = Intake(redis, keys=store.keys, retention=store.retention, figures=figures)
    counting = PushCounting(figures)
    push = PushEndpoint(
        PushAuthentication(settings.push_headers, settings.push_headers_previous), intake, waker, log, counting=counting
    )
    routes: list[BaseRoute] = [Route("/push", push, methods=["POST"]), *health_routes(redis, store.keys)]
    auditor = Auditor(AuditLog(redis, keys=store.keys), key=hiding_key(settings, "audit log"))
    desk = _desk(settings, redis, waker, figures, book, auditor, log)
    people = pages(settings, redis, jobs, desk, auditor, log)
    board = people.board
    writer.doing = lambda: Doing(streams=desk.streams.count + (board.open_streams if board else 0))
    mount = Mount("/desk", desk.app)
    # An address with a line break goes to the desk, which answers with its own error format.
    mount.path_regex = re.compile(mount.path_regex.pattern, re.DOTALL)
    routes += [*people.routes, mount]

    watch = alert_watch(settings.alerts, store, log)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        reporter.start()
        watch.start()
        queries = Queries(redis, keys=store.keys)
        warning = asyncio.create_task(warn_of_unknown_institutions(settings.named_institutions(), queries, log))
        watching = asyncio.create_task(PauseWatch(redis, keys=store.keys).run())
        ending = asyncio.create_task(AcknowledgementWatch(redis, store.keys).run())
        async with desk.running(), auditor.running():
            yield
        await end({warning, watching, ending})
        await asyncio.to_thread(watch.stop)
        await asyncio.to_thread(reporter.stop)
        await redis.aclose()
        jobs.close()

    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=[
            Middleware(SafeHeaders, machine_paths=[b"/push"]),
            Middleware(PlainPath),
            Middleware(Turns, most=room_for_others()),
            *([Middleware(Forwarded, hops=settings.forwarded_hops)] if settings.forwarded_hops else []),
        ],
        exception_handlers={Exception: _on_bug},
    )
    # Starlette would redirect /push/ to the host that the Host header names.
    app.router.redirect_slashes = False

    def leave() -> None:
        """End all streams, so that the process can end."""
        if board is not None:
            board.frames.close()
        desk.leave()

    app.state.leave = leave
    return app


async def _on_bug(_request: Request, _error: Exception) -> Response:
    """Answer an unexpected error with a fixed text; the log has the places in the code."""
    return PlainTextResponse("Internal error.\n", 500, EVERYWHERE)


def _desk(
    settings: WebSettings,
    redis: Redis,
    waker: Waker,
    figures: Figures,
    book: RuleBook,
    auditor: Auditor,
    log: FilteringBoundLogger,
) -> Desk:
    """Build the desk."""
    return Desk(
        redis,
        feed_redis(settings.store.redis),
        origins=settings.desk_origins,
        book=book,
        waker=waker,
        log=log,
        now=utc_now,
        store=Store(redis, keys=settings.store.keys, figures=figures),
        auditor=auditor,
        streams_per_token=min(STREAMS_PER_TOKEN, room_for_others() // 2),
        country=settings.store.country,
        archive=archived_calls(settings.archive),
    )


async def warn_of_unknown_institutions(
    named: Mapping[str, frozenset[str]], queries: Queries, log: Any, *, every_s: float = POLL_EVERY_S
) -> None:
    """Wait until the list of institutions is stored, then log which ones of the settings do not exist.

    Workers check this after their login (``workers.managed_institutions``), the doctor after its own.
    """
    while any(named.values()):
        try:
            known = await queries.institutions()
        except (RedisError, OSError):
            known = None
        if known is not None and known.is_list_stored:
            for setting, key, nearest in known.unknown(named):
                log.warning("institution_unknown", setting=setting, institution=key, nearest=nearest)
            return
        await asyncio.sleep(every_s)

"""The pages for people: board, RQ dashboard, metrics and login, all behind the gate."""

from dataclasses import dataclass
from typing import Final

from redis import Redis as BlockingRedis
from redis.asyncio import Redis
from starlette.responses import RedirectResponse
from starlette.routing import BaseRoute, Mount, Route
from structlog.typing import FilteringBoundLogger

from callkeeper.app.settings import WebSettings
from callkeeper.app.turns import room_for_others
from callkeeper.desk.access.authorization import Doors, Gate
from callkeeper.desk.access.emergency import EmergencyLogin
from callkeeper.desk.access.oidc import Provider
from callkeeper.desk.access.people import Accounts, Sessions
from callkeeper.desk.access.visitor import Auditor
from callkeeper.desk.board.board import Board
from callkeeper.desk.board.login_page import LoginPages
from callkeeper.desk.browser_headers import PAGE, SafeHeaders
from callkeeper.desk.dashboard import dashboard
from callkeeper.desk.desk import Desk
from callkeeper.desk.prometheus_page import MetricsPage
from callkeeper.desk.quotas import STREAMS_PER_PERSON
from callkeeper.desk.signed_tokens import key_for
from receiver.push import utc_now


@dataclass(frozen=True, slots=True)
class Pages:
    """The pages that are served; ``board`` is None if only Prometheus has access."""

    routes: list[BaseRoute]
    board: Board | None


def pages(
    settings: WebSettings,
    redis: Redis,
    jobs: BlockingRedis,
    desk: Desk,
    auditor: Auditor,
    log: FilteringBoundLogger,
) -> Pages:
    """Build the pages that the settings enable."""
    keys = settings.store.keys
    issuer = settings.oidc.issuer if settings.oidc is not None else None
    shared = EmergencyLogin(settings.admin, redis, auditor.log, keys=keys) if settings.admin is not None else None
    account = shared.account if shared is not None else None
    accounts = Accounts(redis, keys=keys, issuer=issuer, shared=account)
    per_person = min(STREAMS_PER_PERSON, room_for_others() // 4)
    board = None
    if settings.has_pages:
        country = settings.store.country
        board = Board(redis, desk, log=log, now=utc_now, country=country, streams_per_person=per_person)

    doors = Doors(
        sessions=Sessions(accounts),
        shared=shared,
        metrics_token=settings.metrics_token,
        has_login_page=settings.has_login_page,
        auditor=auditor,
        log=log,
        away=board.renderers.away if board is not None else None,
        denied=board.renderers.denied if board is not None else None,
    )
    routes: list[BaseRoute] = []
    if board is not None:
        jobs_pages = Gate(dashboard(jobs, address=settings.store.redis.address, queue_name=keys.queue_name), doors)
        guarded = Gate(board.app(), doors)
        routes += [*_REDIRECTS, Mount("/rq", jobs_pages)]
        routes += [Route("/board", guarded), Route("/board/{rest:path}", guarded)]
    oidc, public_url = settings.oidc, settings.alerts.public_url
    if board is not None and oidc and public_url:
        login = LoginPages(
            renderer=board.renderers.of(None),
            accounts=accounts,
            doors=doors,
            provider=Provider(oidc.config(public_url), redis, keys=keys),
            now=utc_now,
        )
        login_app = SafeHeaders(login.app(), PAGE)
        routes += [Route("/login", login_app), Route("/login/{rest:path}", login_app), Route("/logout", login_app)]
    if board is not None or settings.metrics_token is not None:
        routes.append(Route("/metrics", Gate(MetricsPage(redis, keys=keys), doors)))
    return Pages(routes, board)


def hiding_key(settings: WebSettings, purpose: str) -> bytes:
    """Return the key of a hash that hides personal values. It is the same in every process and not stored in Redis."""
    if settings.admin is not None:
        return settings.admin.key_for(purpose)
    secrets = "\n".join(value.reveal() for _, value in settings.push_headers)
    return key_for(purpose, secrets.encode())


_REDIRECTS: Final = (
    Route("/", RedirectResponse("/board", 307), methods=["GET"]),
    Route("/rq", RedirectResponse("/rq/", 308), methods=["GET"]),
)
"""By path only: an absolute address would repeat the Host header."""

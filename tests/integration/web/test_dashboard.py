"""The RQ dashboard behind its login, over a real Redis with real jobs."""

import pickle
import re
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from rq import Queue, SimpleWorker
from rq.registry import FailedJobRegistry
from rq.serializers import JSONSerializer
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp
from structlog.testing import LogCapture
from structlog.typing import FilteringBoundLogger

from callkeeper.calls.store.job_queue import calls_queue
from callkeeper.desk.access.configured_logins import AdminLogin
from callkeeper.desk.browser_headers import SafeHeaders
from callkeeper.desk.dashboard import dashboard
from callkeeper.desk.dashboard import pages as flask_pages
from callkeeper.service.secret import Secret
from callkeeper_sandbox.demo.embedded_redis import EmbeddedRedis
from tests.integration.stock_worker import failed_job, work
from tests.signed_in import gate_of

LOGIN = ("ops", "pässword-of-ops")
ADDRESS = "redis://redis.internal:6379/0"
OWN_PAGE = {"Sec-Fetch-Site": "same-origin", "Origin": "http://desk"}


def report(text: str) -> dict[str, str]:
    """Return a result like that of a shift."""
    return {"summary": text}


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    """Return a connection as RQ needs it."""
    with Redis.from_url(redis_url) as redis:
        yield redis


@pytest.fixture
def queue(redis: Redis) -> Queue:
    """Return the queue that all of us share."""
    return calls_queue(redis)


@pytest.fixture(scope="module")
def pages(redis_server: EmbeddedRedis) -> Iterator[ASGIApp]:
    """Return the dashboard, without a gate. To make it takes longer than most tests."""
    with Redis.from_url(redis_server.url) as redis:
        yield dashboard(redis, address=ADDRESS)


@pytest.fixture
async def browser(pages: ASGIApp, redis: Redis, log: FilteringBoundLogger) -> AsyncIterator[httpx.AsyncClient]:
    """Return a client of the dashboard, as mounted in the web process, without a login."""
    app = Starlette(routes=[Mount("/rq", gate_of(pages, AdminLogin(LOGIN[0], Secret(LOGIN[1])), log))])
    transport = httpx.ASGITransport(SafeHeaders(app))
    async with httpx.AsyncClient(transport=transport, base_url="http://desk") as browser:
        yield browser


@pytest.fixture
def ops(browser: httpx.AsyncClient) -> httpx.AsyncClient:
    """Return the same client with the login."""
    browser.headers["Authorization"] = f"Basic {b64encode(':'.join(LOGIN).encode()).decode()}"
    return browser


async def test_dashboard_shows_what_a_shift_did(ops: httpx.AsyncClient, queue: Queue) -> None:
    """A finished job is readable: its description, its result, its status."""
    job = queue.enqueue(report, "37 calls, 35 checks", description="advance: 37 calls, 35 checks, 1 enroll")
    work(queue)
    shown = (await ops.get(f"/rq/0/data/job/{job.id}.json")).json()
    assert shown["description"] == "advance: 37 calls, 35 checks, 1 enroll"
    assert shown["result"] == {"summary": "37 calls, 35 checks"}
    assert shown["status"] == "finished"
    listed = (await ops.get("/rq/0/data/jobs/calls:2/finished/8/asc/1.json")).json()
    assert [entry["description"] for entry in listed["jobs"]] == ["advance: 37 calls, 35 checks, 1 enroll"]


async def test_dashboard_shows_why_a_job_failed(ops: httpx.AsyncClient, queue: Queue) -> None:
    """A failed job is readable with its traceback, alone and in the list of failed ones."""
    job_id = failed_job(queue)
    assert "ZeroDivisionError: boom" in (await ops.get(f"/rq/0/data/job/{job_id}.json")).json()["exc_info"]
    [listed] = (await ops.get("/rq/0/data/jobs/calls:2/failed/8/asc/1.json")).json()["jobs"]
    assert "ZeroDivisionError: boom" in listed["exc_info"]


@pytest.mark.parametrize(
    "path",
    ["/rq/", "/rq/0/view", "/rq/0/view/jobs", "/rq/0/view/workers", "/rq/0/view/jobs/calls:2/failed/8/asc/1"],
)
async def test_dashboard_pages_open(path: str, ops: httpx.AsyncClient, queue: Queue) -> None:
    """Every page opens, with scripts and styles under its own mount point, and shows the address we gave it."""
    failed_job(queue)
    page = await ops.get(path, follow_redirects=True)
    assert page.status_code == 200
    assert 'src="/rq/static/js/jquery' in page.text
    assert "http-equiv" not in page.text
    assert ADDRESS in page.text


async def test_dashboard_shows_workers_and_their_jobs(ops: httpx.AsyncClient, queue: Queue, redis: Redis) -> None:
    """A busy worker is shown with the call that it runs, although the job is JSON and not pickled."""
    job = queue.enqueue(report, "x", description="advance")
    worker = SimpleWorker([queue], name="w1", connection=redis, serializer=JSONSerializer)
    worker.register_birth()  # type: ignore[no-untyped-call]
    worker.set_current_job_id(job.id)
    [shown] = (await ops.get("/rq/0/data/workers.json")).json()["workers"]
    assert shown["name"] == "w1"
    assert shown["current_job"]["description"] == "advance"
    worker.register_death()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    "path",
    ["/rq/", "/rq/0/view/jobs", "/rq/0/data/queues.json", "/rq/static/css/main.css", "/rq/favicon.ico", "/rq/nothing"],
)
@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "Basic",
        "Basic !!!",
        f"Bearer {b64encode(':'.join(LOGIN).encode()).decode()}",
        f"Basic {b64encode(b'ops:wrong').decode()}",
        f"Basic {b64encode(b'ops:').decode()}",
        "Basic \xff",
    ],
    ids=["none", "empty", "no-base64", "other-scheme", "wrong", "no-password", "non-ascii"],
)
async def test_dashboard_needs_the_login_everywhere(
    path: str, authorization: str | None, browser: httpx.AsyncClient, logged: LogCapture
) -> None:
    """Nothing under the mount point, not even a style sheet, is served to a stranger; the attempt is logged."""
    headers = [] if authorization is None else [(b"Authorization", authorization.encode("latin-1"))]
    answer = await browser.get(path, headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Basic ")
    told = ("info", "no_login") if authorization is None else ("warning", "credentials")
    [entry] = logged.entries
    assert (entry["event"], entry["log_level"], entry["reason"]) == ("admin_refused", *told)


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"])
@pytest.mark.parametrize(
    "path",
    [
        *("/requeue/calls", "/job/{id}/requeue", "/job/{id}/delete", "/queue/calls/queued/empty"),
        *("/queue/calls/failed/empty", "/queue/calls/compact", "/queue/other/queued/empty"),
    ],
)
async def test_dashboard_changes_nothing(method: str, path: str, ops: httpx.AsyncClient, queue: Queue) -> None:
    """No route that changes something is reached, by any method."""
    job_id = failed_job(queue)
    waiting = queue.enqueue(report, "x")
    answer = await ops.request(method, f"/rq{path.format(id=job_id)}", headers=OWN_PAGE)
    assert answer.status_code == (404 if method in {"GET", "HEAD"} else 403)
    assert FailedJobRegistry(queue=queue).get_job_ids() == [job_id]
    assert queue.job_ids == [waiting.id]


async def test_dashboard_refuses_every_route_that_can_change_something(redis: Redis) -> None:
    """Every route with another method than GET is refused, also one that a later release of rq-dashboard may add."""
    app = flask_pages(redis, address=ADDRESS, queue_name="calls")
    posting = [rule for rule in app.url_map.iter_rules() if "POST" in (rule.methods or ())]
    assert len(posting) >= 5
    app.add_url_rule("/added", view_func=lambda: "changed", methods=["GET", "DELETE"])
    names = ("job_id", "queue_name", "registry_name")
    with app.test_client() as client:
        for rule in posting:
            path = app.url_map.bind("").build(rule.endpoint, {name: "x" for name in names if name in rule.arguments})
            assert (client.get(path).status_code, client.post(path).status_code) == (404, 403), path
        assert client.get("/added").status_code == 404
        assert client.post("/0/view/jobs").status_code == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://desk.evil.example"},
        {"Sec-Fetch-Site": "cross-site", "Origin": "http://desk"},
    ],
)
async def test_dashboard_refuses_posts_from_other_sites(
    headers: dict[str, str], ops: httpx.AsyncClient, queue: Queue
) -> None:
    """The browser sends the login along with a foreign page's form; such a request is refused and logged."""
    job_id = failed_job(queue)
    answer = await ops.post("/rq/requeue/calls", headers=headers)
    assert (answer.status_code, answer.text) == (403, "Only from our own pages.\n")
    assert FailedJobRegistry(queue=queue).get_job_ids() == [job_id]


class Planted:
    """Creates a file when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, (self.path, "w")


@pytest.mark.parametrize("field", ["data", "meta", "result"])
async def test_dashboard_never_unpickles(
    field: str, ops: httpx.AsyncClient, queue: Queue, redis: Redis, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """C10: showing a job never executes data from Redis."""
    trap = tmp_path_factory.mktemp("trap") / "sprung"
    job_id = failed_job(queue)
    redis.hset(f"rq:job:{job_id}", field, pickle.dumps(Planted(str(trap))))
    await ops.get("/rq/0/data/jobs/calls:2/failed/8/asc/1.json")
    await ops.get(f"/rq/0/data/job/{job_id}.json")
    await ops.get(f"/rq/0/view/job/{job_id}")
    assert not trap.exists()


async def test_dashboard_forbids_frames_and_other_hosts(ops: httpx.AsyncClient) -> None:
    """No page can show ours in a frame; ours asks nobody else for anything, and one inline script runs: its own."""
    page = await ops.get("/rq/")
    assert page.headers["x-frame-options"] == "DENY"
    [policy] = page.headers.get_list("content-security-policy")
    assert "frame-ancestors 'none'" in policy
    assert "default-src 'none'" in policy
    [nonce] = set(re.findall("'nonce-([^']+)'", policy))
    assert re.findall("<script(?! name| src)[^>]*>", page.text) == [f'<script nonce="{nonce}">']
    assert "'unsafe-inline'" not in policy.partition("script-src")[2].partition(";")[0]
    assert nonce not in (await ops.get("/rq/")).headers["content-security-policy"]


@pytest.mark.parametrize("path", ["/rq/1/view", "/rq/7/data/queues.json", "/rq/0/view/job/unknown"])
async def test_dashboard_answers_404_for_what_is_not_there(path: str, ops: httpx.AsyncClient) -> None:
    """Another Redis than ours or a job that is gone is 404, not a traceback."""
    assert (await ops.get(path)).status_code == 404


async def test_dashboard_answers_404_for_a_job_that_goes_meanwhile(
    ops: httpx.AsyncClient, queue: Queue, redis: Redis
) -> None:
    """RQ asks for a job's status after it has read the job: a job that has none by then is gone."""
    job_id = failed_job(queue)
    redis.hdel(f"rq:job:{job_id}", "status")
    assert (await ops.get(f"/rq/0/data/job/{job_id}.json")).status_code == 404


async def test_dashboard_survives_redis(log: FilteringBoundLogger) -> None:
    """Without Redis the pages answer 503 and no traceback."""
    pages = dashboard(Redis(host="127.0.0.1", port=1, retry=Retry(NoBackoff(), 0)), address=ADDRESS)
    app = gate_of(pages, AdminLogin(LOGIN[0], Secret(LOGIN[1])), log)
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app),
        base_url="http://desk",
        headers={"Authorization": f"Basic {b64encode(':'.join(LOGIN).encode()).decode()}"},
    ) as client:
        answer = await client.get("/0/data/queues.json")
    assert (answer.status_code, answer.text) == (503, "Redis does not answer.\n")

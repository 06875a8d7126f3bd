"""Attacks on the RQ dashboard of a running web process, by addresses, by links, and by data in Redis."""

from collections.abc import Iterator
from urllib.parse import quote

import httpx
import pytest
from playwright.sync_api import Browser, Page
from redis import Redis
from rq import Queue

from callkeeper.calls.store.job_queue import calls_queue
from callkeeper.calls.store.keys import QUEUE_NAME
from callkeeper_sandbox.demo.embedded_redis import EmbeddedRedis
from tests.audit.conftest import Target, web_process
from tests.audit.foreign_page import foreign_page
from tests.audit.raw_requests import ADMIN

USER, _, PASSWORD = ADMIN.partition(":")

# Reads a form token from the board and pauses everything. It has no slash, because it is one segment of a path.
_PAUSE = r"""
fetch('\x2fboard\x2fpausing').then(r=>r.text()).then(t=>{
 const k=t.match(new RegExp('name="form_token" value="([^"]+)"'))[1];
 return fetch('\x2fboard\x2fpause',{method:'POST',headers:{'content-type':'application\x2fx-www-form-urlencoded'},
 body:'form_token='+encodeURIComponent(k)+'&scope=all&operator=alice&because=pressed+by+a+foreign+page'})
}).then(()=>{document.title='DONE'})
""".replace("\n", " ")
EVIL_QUEUE = "');}});" + _PAUSE + ";$('#zz').on('x',function(){if(1){$('"

ODD = (
    "/0/view/jobs/calls:2/nonsense/8/asc/1",
    "/0/view/jobs/calls:2/failed/8/sideways/1",
    "/0/view/jobs/calls:2/failed/0/asc/1",
    "/0/view/jobs/calls:2/failed/8/asc/0",
    "/0/view/jobs/calls:2/failed/8/asc/99999999999999999999",
    "/0/view/jobs/other/failed/8/asc/1",
    "/0/data/jobs/calls:2/nonsense/8/asc/1.json",
    "/0/data/jobs/calls:2/failed/x/asc/1.json",
    "/0/data/jobs/calls:2/failed/0/asc/1.json",
    "/0/data/jobs/calls:2/failed/-8/asc/1.json",
    "/0/data/jobs/calls:2/failed/8/asc/-1.json",
    "/0/data/jobs/calls:2/failed/8/asc/x.json",
    "/0/data/jobs/calls:2/failed/8/dsc/99999999999999999999.json",
    "/0/data/jobs/calls:2/failed/99999999999999999999/asc/1.json",
    "/0/data/jobs/calls:2/failed/8/asc/%D9%A1.json",
    "/0/data/jobs/other/failed/8/asc/1.json",
    "/0/data/job/a%00b.json",
    "/0/view/job/%3Cimg%20src=x%3E",
    "/1/view",
    "/99999999999999999999/view",
    "/static/%00",
    "/static/..%2f..%2fweb.py",
    "/static/" + "x" * 3000,
    "/0//view",
    "/nothing",
)


@pytest.fixture(scope="module")
def target(
    redis_server: EmbeddedRedis, flushing_redis: Redis, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Target]:
    """Run one web process for all tests of this module. Redis is empty: another module's wrong logins count here too."""
    flushing_redis.flushall()
    with web_process(redis_server.url, tmp_path_factory.mktemp("web")) as target:
        yield target


def ask(target: Target, method: str, path: str, **headers: str) -> httpx.Response:
    """Send a request as the browser of a logged-in person does."""
    own = {"X-Forwarded-For": "203.0.113.7", "Sec-Fetch-Site": "same-origin"}
    return httpx.request(
        method, f"{target.url}/rq{path}", auth=(USER, PASSWORD), headers=own | headers, trust_env=False, timeout=20
    )


@pytest.fixture
def page(browser: Browser, target: Target, redis_url: str) -> Iterator[Page]:
    """Return a page of a browser in which a person has logged in."""
    login = {"username": USER, "password": PASSWORD, "origin": target.url}
    context = browser.new_context(http_credentials=login)  # type: ignore[arg-type]  # a dict is a TypedDict here
    page = context.new_page()
    page.goto(f"{target.url}/board")
    yield page
    context.close()


def is_paused(target: Target) -> bool:
    """Tell whether the attack has paused something."""
    pausing = httpx.get(f"{target.url}/board/pausing", auth=(USER, PASSWORD), trust_env=False)
    return "pressed by a foreign page" in pausing.text


@pytest.mark.parametrize("how", ["linked", "typed"])
def test_link_with_a_script_in_it_does_nothing(how: str, page: Page, target: Target) -> None:
    """A script in an address is not run, whether another site links to the address or a person types it."""
    address = f"{target.url}/rq/0/view/jobs/{quote(EVIL_QUEUE, safe='')}/queued/8/asc/1"
    with foreign_page(f"<script>location = {address!r}</script>") as elsewhere:
        with page.expect_response(lambda response: "/rq/" in response.url) as answered:
            page.goto(elsewhere if how == "linked" else address)
        page.wait_for_timeout(1000)
    assert answered.value.status == 404
    assert page.title() != "DONE"
    assert not is_paused(target)


def test_pages_work_in_a_browser(page: Page, target: Target, redis_url: str) -> None:
    """The pages show our queue and its jobs, run their scripts without an error, and no script of a description."""
    planted = "<img src=x onerror=\"document.title='DONE'\">"
    with Redis.from_url(redis_url) as redis:
        job = calls_queue(redis).enqueue("a.b", description=planted)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"{target.url}/rq/")
    page.locator("table#queues a", has_text="1").first.click()
    page.get_by_text(planted).first.wait_for()
    page.goto(f"{target.url}/rq/0/view/job/{job.id}")
    page.get_by_text("Origin queue").first.wait_for()
    page.wait_for_timeout(500)
    assert page.title() != "DONE"
    assert errors == []


@pytest.mark.parametrize("path", ODD, ids=lambda path: path[:60])
def test_odd_addresses_are_404(path: str, target: Target) -> None:
    """Unknown or invalid addresses get 404, not 500 or 503, and no error is logged."""
    assert ask(target, "GET", path).status_code == 404
    assert target.events("error", "critical") == []


@pytest.mark.parametrize("path", ["", "/", "/0", "/0/", "/0/view/", "/0/view/queues/", "/static"])
def test_host_is_never_repeated(path: str, target: Target) -> None:
    """No answer contains the host that the request names."""
    answer = ask(target, "GET", path, Host="evil.example")
    assert answer.status_code in {200, 308, 404}
    assert "evil.example" not in answer.text + str(answer.headers)


def test_other_queues_are_not_shown(target: Target, redis_url: str) -> None:
    """Another program's queue in the same Redis is not listed."""
    with Redis.from_url(redis_url) as redis:
        Queue("other", connection=redis).enqueue("a.b")
    assert [queue["name"] for queue in ask(target, "GET", "/0/data/queues.json").json()["queues"]] == [QUEUE_NAME]


def test_jobs_of_other_queues_do_not_exist(target: Target, redis_url: str) -> None:
    """Another program's job cannot be read, by its id or because its id is in our list of failed jobs."""
    with Redis.from_url(redis_url) as redis:
        job = Queue("other", connection=redis).enqueue("a.b", description="theirs")
        assert ask(target, "GET", f"/0/data/job/{job.id}.json").status_code == 404
        assert ask(target, "GET", f"/0/view/job/{job.id}").status_code == 404
        redis.zadd("rq:failed:calls:2", {job.id: 2e9})
        assert ask(target, "GET", "/0/data/jobs/calls:2/failed/8/asc/1.json").json()["jobs"] == []

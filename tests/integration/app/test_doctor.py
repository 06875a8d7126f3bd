"""``callkeeper doctor`` names each fault with a remedy, and checks everything that does not depend on a fault."""

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from shutil import rmtree
from threading import Barrier, Lock
from typing import Any

import httpx
import pytest
from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.exceptions import ResponseError

from callkeeper.app.doctor import Finding, ProcessKind, Severity, examine
from callkeeper.app.doctor.causes import guarded, provider_findings
from callkeeper.app.doctor.finding import Topic, ok
from callkeeper.app.doctor.pushes import push_findings
from callkeeper.app.doctor.service_account import clock_finding
from callkeeper.app.settings import VARIABLES, WorkerSettings
from callkeeper.calls.item_names import CallId
from callkeeper.calls.metrics import catalogue
from callkeeper.calls.metrics.counting import Figures
from callkeeper.calls.metrics.redis_writer import Author, FigureWriter
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.last_errors import ErrorArea, ErrorNotes
from callkeeper.desk.access.configured_logins import OidcConfig
from callkeeper.desk.access.oidc import Provider, ProviderAway
from callkeeper.service import Secret
from callkeeper.service.proxy import Proxy
from callkeeper_sandbox.demo.embedded_redis import embedded_redis
from tests.http_servers import serving
from tests.integration.service.raw_service import always, config_of, raw_service, reply
from tests.integration.service.test_aiohttp_transport_tls import ANSWER, AUTHORITY, server_tls
from tests.sandbox_fixtures import TLS, ServedSandbox
from tests.tunnel import tunnel
from tests.waiting import until
from workers.standings import AT_ONCE


def environment(redis_url: str, sandbox: ServedSandbox) -> dict[str, str]:
    """Return the settings of an installation against the stand-in."""
    own = sandbox.credentials
    return {
        "REDIS_URL": redis_url,
        "CALLKEEPER_SERVICE_URL": sandbox.url,
        "CALLKEEPER_ACCESS_TOKEN": own.access_token,
        "CALLKEEPER_EMAIL": own.email,
        "CALLKEEPER_PASSWORD": own.password,
        "CALLKEEPER_REQUESTED_BY": "bot",
        "CALLKEEPER_PUSH_HEADERS": "X-Push-Key: 7d1f0c2b9a8e4d6f5b3c1a0e2f4d6c8b",
    }


async def findings(
    environ: dict[str, str], only: ProcessKind | None = None, *, before_deploy: bool = False
) -> dict[str, Finding]:
    """Return what the doctor found, by what was looked at."""
    return {finding.what: finding async for finding in examine(environ, only=only, before_deploy=before_deploy)}


def faults_in(found: dict[str, Finding]) -> set[str]:
    """Return what is a fault."""
    return {what for what, finding in found.items() if finding.severity is Severity.FAULT}


async def test_doctor_finds_only_the_missing_processes_on_a_good_installation(
    redis_url: str, sandbox_server: ServedSandbox
) -> None:
    """With Redis, the service and all settings in order, only the processes that nobody started are a fault."""
    found = await findings(environment(redis_url, sandbox_server))
    faults = {what for what, finding in found.items() if finding.severity is Severity.FAULT}
    assert faults == {"incident no web", "incident no worker"}
    assert found["queue cu-1"].severity is Severity.OK
    assert "Start workers" in found["incident no worker"].remedy


@pytest.mark.parametrize("only", [None, "web", "worker"])
async def test_release_step_refuses_a_misspelled_variable(
    redis_url: str, sandbox_server: ServedSandbox, only: ProcessKind | None
) -> None:
    """A variable that no version knows stops a release, with the name that was meant and without its value."""
    environ = environment(redis_url, sandbox_server) | {"CALLKEEPER_SERVICE_RP": "canary"}
    found = await findings(environ, only, before_deploy=True)
    assert faults_in(found) == {"settings CALLKEEPER_SERVICE_RP"}
    finding = found["settings CALLKEEPER_SERVICE_RP"]
    assert "CALLKEEPER_SERVICE_RPS" in finding.detail + finding.remedy
    assert "canary" not in finding.detail + finding.remedy


async def test_misspelled_variable_is_named_beside_the_one_that_it_leaves_unset(
    redis_url: str, sandbox_server: ServedSandbox
) -> None:
    """A required variable that is misspelled is named twice: as missing, and as what was typed."""
    environ = environment(redis_url, sandbox_server)
    environ["CALLKEEPER_EMAILS"] = environ.pop("CALLKEEPER_EMAIL")
    assert faults_in(await findings(environ, "worker")) >= {"settings CALLKEEPER_EMAIL", "settings CALLKEEPER_EMAILS"}


async def test_rollback_is_not_refused_for_a_variable_of_the_newer_version(
    redis_url: str, sandbox_server: ServedSandbox
) -> None:
    """A variable that another version knew in its release step is a warning: a rollback keeps the newer settings."""
    environ = environment(redis_url, sandbox_server)
    with Redis.from_url(redis_url) as redis:
        assert not redis.exists(Keys().settings)
        await findings(environ)
        assert not redis.exists(Keys().settings)  # only the release step writes
        await findings(environ, before_deploy=True)
        assert {name.decode() for name in redis.smembers(Keys().settings)} == set(VARIABLES)
        redis.sadd(Keys().settings, "CALLKEEPER_NEWER")
    found = await findings(environ | {"CALLKEEPER_NEWER": "x"}, before_deploy=True)
    assert faults_in(found) == set()
    assert found["settings CALLKEEPER_NEWER"].severity is Severity.WARNING


@pytest.mark.parametrize(("only", "hidden"), [("web", "CALLKEEPER_PASSWORD"), ("worker", "CALLKEEPER_PUSH_HEADERS")])
async def test_doctor_looks_at_the_settings_of_one_process(
    redis_url: str, sandbox_server: ServedSandbox, only: ProcessKind, hidden: str
) -> None:
    """With separate settings, each process is checked with its own; web needs no login at the service."""
    environ = environment(redis_url, sandbox_server)
    del environ[hidden]
    found = await findings(environ, only)
    faults = {what for what, finding in found.items() if finding.severity is Severity.FAULT}
    assert faults == {"incident no web", "incident no worker"}
    assert found["settings"].severity is Severity.OK
    assert ("login" in found) is (only == "worker")
    del environ["CALLKEEPER_PUSH_HEADERS" if only == "web" else "CALLKEEPER_PASSWORD"]
    assert any(what.startswith("settings CALLKEEPER_P") for what in await findings(environ, only))


async def test_doctor_names_a_missing_variable(redis_url: str, sandbox_server: ServedSandbox) -> None:
    """A missing variable is named with an example, and checks that need it are left out."""
    environ = environment(redis_url, sandbox_server)
    del environ["CALLKEEPER_PASSWORD"]
    found = await findings(environ)
    assert found["settings CALLKEEPER_PASSWORD"].severity is Severity.FAULT
    assert "CALLKEEPER_PASSWORD=" in found["settings CALLKEEPER_PASSWORD"].remedy
    assert "login" not in found


async def test_doctor_names_a_refused_login(redis_url: str, sandbox_server: ServedSandbox) -> None:
    """A wrong password is a fault of the login; the finding shows neither the password nor the service's answer."""
    environ = environment(redis_url, sandbox_server) | {"CALLKEEPER_PASSWORD": "not-the-right-one-at-all"}
    found = await findings(environ)
    assert found["login"].severity is Severity.FAULT
    assert "CALLKEEPER_" in found["login"].remedy
    assert "not-the-right-one-at-all" not in str(found)


async def test_doctor_names_another_installation_of_the_account(
    redis_url: str, blocking_redis: Redis, sandbox_server: ServedSandbox
) -> None:
    """Also before a deployment: the new workers would not start."""
    environ = environment(redis_url, sandbox_server)
    WorkerSettings.load(environ | {"CALLKEEPER_REDIS_PREFIX": "ck2"}).account_use().note(blocking_redis)
    finding = (await findings(environ, before_deploy=True))["workers of another installation"]
    assert finding.severity is Severity.FAULT
    assert "CALLKEEPER_REDIS_PREFIX=ck2" in finding.detail


async def test_doctor_names_a_redis_that_forgets(redis_url: str, sandbox_server: ServedSandbox) -> None:
    """A Redis that may evict keys is a fault, with the setting to change."""
    with Redis.from_url(redis_url) as redis:
        redis.config_set("maxmemory-policy", "allkeys-lru")
        try:
            found = await findings(environment(redis_url, sandbox_server))
        finally:
            redis.config_set("maxmemory-policy", "noeviction")
    assert found["redis eviction"].severity is Severity.FAULT
    assert "noeviction" in found["redis eviction"].remedy


async def test_doctor_names_a_redis_that_does_not_answer(sandbox_server: ServedSandbox) -> None:
    """An address at which nobody answers is named without user and password."""
    environ = environment("redis://user:very-secret-word@127.0.0.1:1/0", sandbox_server)
    found = await findings(environ)
    assert found["redis"].severity is Severity.FAULT
    assert "very-secret-word" not in str(found)


@pytest.mark.parametrize(
    ("lacking", "missing"),
    [
        pytest.param({"categories": ["+@all"], "keys": ["other:*", "rq:*"]}, "~ck:*", id="prefix"),
        pytest.param({"categories": ["+@all"], "commands": ["-time"], "keys": ["*"]}, "+time", id="command"),
    ],
)
async def test_doctor_names_rights_that_our_user_lacks(
    redis_url: str, sandbox_server: ServedSandbox, lacking: dict[str, Any], missing: str
) -> None:
    """The user of ``REDIS_URL`` may not do what the doctor needs, as with the rights of another prefix."""
    url = redis_url.replace("://", "://ops:ops-word-4711@")
    with Redis.from_url(redis_url) as redis:
        redis.acl_setuser("ops", enabled=True, passwords=["+ops-word-4711"], **lacking)
        try:
            found = await findings(environment(url, sandbox_server))
        finally:
            redis.acl_deluser("ops")
    assert found["redis"].detail == f"{redis_url}: our user lacks rights: {missing}"
    assert "deploy/redis/users.acl.example" in found["redis"].remedy


async def test_doctor_names_a_database_that_does_not_exist(redis_url: str, sandbox_server: ServedSandbox) -> None:
    """A number above the server's last database is what is wrong, not that the server is away."""
    found = await findings(environment(f"{redis_url.rpartition('/')[0]}/99", sandbox_server))
    assert found["redis"].severity is Severity.FAULT
    assert "no such database" in found["redis"].detail
    assert "REDIS_URL" in found["redis"].remedy


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("CALLKEEPER_INSTITUTIONS", "cu-1, CU-2"),
        ("CALLKEEPER_REQUESTED_BY", "bot, CU-2=svc2"),
    ],
)
async def test_doctor_names_an_institution_without_rights(
    redis_url: str, sandbox_server: ServedSandbox, setting: str, value: str
) -> None:
    """An institution in a setting that the account may not manage is a fault, with the most similar key."""
    sandbox_server.control("PUT", "/institutions/cu-2", {"name": "Second Example"})
    found = await findings(environment(redis_url, sandbox_server) | {setting: value})
    finding = found[f"institutions {setting}"]
    assert finding.severity is Severity.FAULT
    assert finding.detail == "the account may not manage 'CU-2'; did you mean cu-2 (Second Example)?"
    assert finding.remedy.startswith(f"correct {setting}, or have")


@pytest.mark.parametrize(
    ("action", "remedy"),
    [
        ("reset", "workers try again by themselves; if it lasts, ask the service operator"),
        ("html", "workers try again by themselves; if it lasts, ask the service operator"),
    ],
)
async def test_doctor_does_not_doubt_the_operator_where_the_service_fails(
    redis_url: str, sandbox_server: ServedSandbox, action: str, remedy: str
) -> None:
    """A connection that breaks and an answer that is a web page have nothing to do with ``RequestedBy``."""
    sandbox_server.fault("queue", action, times=100)
    finding = (await findings(environment(redis_url, sandbox_server)))["queue cu-1"]
    assert (finding.severity, finding.remedy) == (Severity.FAULT, remedy)


async def test_stranger_hides_no_lost_push(redis_url: str) -> None:
    """Each reason for which pushes were refused has a line: a stranger who guesses must not hide lost pushes."""
    figures = Figures()
    for reason in ("credentials", "not_recorded", "unreadable"):
        figures.count(catalogue.PUSHES_REFUSED, reason)
    with Redis.from_url(redis_url) as redis:
        FigureWriter(figures, Author("web-1", "web"), now_ms=lambda: int(time.time() * 1000)).write(redis)
    async with AsyncRedis.from_url(redis_url) as client:
        details = [finding.detail for finding in await push_findings(client, Keys(), ())]
    assert details == [
        "1 refused in the last hour for a wrong or missing header, none accepted",
        "1 answered with 503 in the last hour: Redis did not confirm them",
        "refused in the last hour: 1 unreadable",
    ]


async def test_last_push_and_sample_of_each_institution_are_told(redis_url: str) -> None:
    """When pushed calls came was counted, so a busy institution hides no quiet one. The doctor's samples do not count."""
    figures = Figures()
    figures.count(catalogue.CALLS_PUSHED, "cu-2", "came")
    figures.count(catalogue.PUSHES, "doctor")
    with Redis.from_url(redis_url) as redis:
        FigureWriter(figures, Author("worker-1", "worker")).write(redis)
        redis.set(Keys().sample("cu-1"), int(time.time() * 1000))
    async with AsyncRedis.from_url(redis_url) as client:
        found = await push_findings(client, Keys(), ("cu-1", "cu-2", "cu-3"))
    assert {finding.about: finding.detail for finding in found} == {
        "": "none has come yet",
        "cu-1": "last push never, last sample 0 s ago",
        "cu-2": "last push 0 s ago, last sample never",
        "cu-3": "neither a push nor a sample has come",
    }


async def test_doctor_says_once_that_no_web_process_is_alive(redis_url: str, sandbox_server: ServedSandbox) -> None:
    """That no pushes come follows from it. A wrong header is a cause of its own, which lasts when web is back."""
    figures = Figures()
    figures.count(catalogue.CALLS_FOUND, "cu-1", "queue")
    figures.count(catalogue.CALLS_PUSHED, "cu-1", "missing", n=3)
    with Redis.from_url(redis_url) as redis:
        worker = FigureWriter(figures, Author("worker-1", "worker"))
        worker.write(redis)
        found = await findings(environment(redis_url, sandbox_server))
        assert faults_in(found) == {"incident no web"}
        assert not [what for what in found if what.startswith(Topic.PUSHES)]
        figures.count(catalogue.PUSHES_REFUSED, "credentials", n=3)
        worker.write(redis)
        assert faults_in(await findings(environment(redis_url, sandbox_server))) == {"incident no web", "pushes"}
        FigureWriter(Figures(), Author("web-1", "web")).write(redis)
        assert faults_in(await findings(environment(redis_url, sandbox_server))) == {"pushes"}


async def test_doctor_says_that_a_busy_worker_reads_less(redis_url: str, sandbox_server: ServedSandbox) -> None:
    """Calls are not late then, so nothing else would say that more workers are needed."""
    for share, severity in ((0.6, Severity.OK), (0.72, Severity.WARNING)):
        author = Author(f"worker-{share}", "worker")
        with Redis.from_url(redis_url) as redis:
            FigureWriter(Figures(), author, cpu_share=lambda share=share: share).write(redis)  # type: ignore[misc]
        found = (await findings(environment(redis_url, sandbox_server)))["workers"]
        assert found.severity is severity
    assert found.detail == "2 alive; one uses 72% of a core, so it reads details less often"
    assert found.remedy == "start more workers"


async def test_doctor_counts_no_processes_where_none_can_report(
    redis: AsyncRedis, redis_url: str, sandbox_server: ServedSandbox
) -> None:
    """If Redis is full, processes that run cannot report. To start more would not help."""
    await redis.config_set("maxmemory", 1)
    try:
        found = await findings(environment(redis_url, sandbox_server))
    finally:
        await redis.config_set("maxmemory", 0)
    assert found["incident redis refuses"].severity is Severity.FAULT
    assert not found.keys() & {"incident no web", "incident no worker"}


async def test_doctor_names_what_waits_and_for_whom(redis_url: str, sandbox_server: ServedSandbox) -> None:
    """A late call, a failed job, a doubt and an undelivered outcome have one line each."""
    keys, now_ms = Keys(), int(time.time() * 1000)
    with Redis.from_url(redis_url) as redis:
        FigureWriter(Figures(), Author("web-1", "web")).write(redis)
        redis.hset(keys.breakers, "cu-1", f"1 {now_ms - 60_000} {now_ms + 2_000} pause")
        redis.zadd(keys.due, {CallId("cu-1", "v-1").member: now_ms - 30_000})
        redis.zadd(keys.failed_jobs, {"job": now_ms})
        redis.hset(keys.attention, CallId("cu-1", "v-2").member, "enroll unresolved")
        redis.hset(keys.outbox.attention, CallId("cu-1", "v-3").member, "outcome call.settled not delivered for a day")
        found = await findings(environment(redis_url, sandbox_server))
    assert "the service asked for it (429)" in found["incident rate limited cu-1"].remedy
    assert "incident late" not in found, "no worker is alive: that calls are late follows from it"
    assert (found["jobs"].severity, found["jobs"].detail) == (Severity.WARNING, "1 have failed, 0 wait")
    assert found["attention"].detail == "1 needs a person: 1 enroll unresolved"
    assert "callkeeper outcomes replay" in found["outcomes"].remedy
    assert found["pushes"].detail == "none has come yet"


@pytest.fixture
def keeping_redis_url(tmp_path: Path) -> Iterator[str]:
    """Return the URL of a Redis that keeps its data in a file, as one in production does."""
    with embedded_redis(tmp_path) as server:
        yield server.url


async def test_doctor_names_an_outage_of_the_service_alone(
    keeping_redis_url: str, sandbox_server: ServedSandbox
) -> None:
    """What follows from it is left out: its institutions, queues, late calls, missing pushes, refused logins."""
    keys, now_ms = Keys(), int(time.time() * 1000)
    away = f"7 {now_ms - 60_000} {now_ms + 2_000} failure"
    with Redis.from_url(keeping_redis_url) as redis:
        redis.hset(keys.breakers, mapping={"": away, "cu-1": away, "cu-2": away})
        redis.hset(keys.endpoints, mapping={"queue ": away, "queue cu-1": away})
        redis.zadd(keys.due, {CallId("cu-1", "v-1").member: now_ms - 30_000})
    async with AsyncRedis.from_url(keeping_redis_url) as client:
        await ErrorNotes(client, keys).note(ErrorArea.CALLS, "cu-1", "status 503: upstream down")
    found = await findings(environment(keeping_redis_url, sandbox_server))
    wrong = {what for what, finding in found.items() if finding.severity is not Severity.OK}
    assert wrong == {"incident service away", "incident no web", "incident no worker", "dashboard", "rules"}
    finding = found["incident service away"]
    assert finding.detail.startswith("The service is away, since ")
    assert finding.detail.endswith("; last error: status 503: upstream down")
    assert "7 requests failed in a row" in finding.remedy


@contextmanager
def saving_fails(redis: Redis) -> Iterator[None]:
    """Let Redis fail to write its snapshot: a folder is in the way."""
    client: Any = redis
    saved_after = client.config_get("save")["save"]
    snapshot = Path(client.config_get("dir")["dir"], client.config_get("dbfilename")["dbfilename"])
    snapshot.unlink(missing_ok=True)
    (snapshot / "in the way").mkdir(parents=True)
    client.config_set("save", "3600 1")
    try:
        _save(client, "err")
        yield
    finally:
        rmtree(snapshot)
        _save(client, "ok")
        client.config_set("save", saved_after)


def _save(client: Any, result: str) -> None:
    client.bgsave()
    until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == result, 30, "the snapshot to end")


async def test_doctor_says_what_it_means_if_redis_cannot_save(redis_url: str, sandbox_server: ServedSandbox) -> None:
    """After a failed snapshot Redis answers MISCONF, also to PING. The doctor names the disk, and looks at the rest."""
    with Redis.from_url(redis_url) as redis, saving_fails(redis):
        found = await findings(environment(redis_url, sandbox_server))
    assert found["incident redis refuses"].severity is Severity.FAULT
    assert "it cannot write to its disk (MISCONF)" in found["incident redis refuses"].detail
    assert "make room on its disk" in found["incident redis refuses"].remedy
    assert found["queue cu-1"].severity is Severity.OK
    assert {"redis latency", "attention", "alerts"} <= found.keys()


async def test_doctor_s_remedy_for_a_certificate_is_about_the_certificate(
    redis_url: str, sandbox_server: ServedSandbox
) -> None:
    """Neither the password nor the number of workers has to do with it."""
    async with raw_service(ANSWER, server_tls("good")) as service:
        url = service.url.replace("http:", "https:")
        found = await findings(environment(redis_url, sandbox_server) | {"CALLKEEPER_SERVICE_URL": url}, "worker")
    assert "the certificate is of an unknown authority" in found["login"].detail
    assert "no proxy before it" in found["login"].remedy
    assert "PASSWORD" not in found["login"].remedy


async def test_doctor_shows_why_the_identity_provider_fails(redis: AsyncRedis) -> None:
    """Nobody can log in there: the line has host and cause, and goes with the next answer."""
    config = OidcConfig(
        issuer="http://127.0.0.1:1",
        client_id="ck",
        client_secret=Secret("secret-0123456789"),
        redirect_uri="https://ck.example/login/callback",
        role_claim="groups",
        operator_claim="core",
        grants=(),
    )
    with pytest.raises(ProviderAway):
        await Provider(config, redis, keys=Keys()).about()
    [finding] = await provider_findings(redis, Keys())
    assert finding.detail.endswith("last error: 127.0.0.1:1: no whole answer: connection refused")
    notes = ErrorNotes(redis, Keys())
    await notes.note(ErrorArea.PROVIDER, "", "status 500")
    await notes.clear(ErrorArea.PROVIDER, "")
    assert await provider_findings(redis, Keys()) == []


async def test_section_that_redis_refuses_is_one_line_and_the_next_follows() -> None:
    """The doctor never ends with a traceback because of what it examines."""

    async def section() -> AsyncIterator[Finding]:
        yield ok(Topic.JOBS, "none has failed")
        raise ResponseError("MISCONF Redis is configured to save RDB snapshots")

    [fine, broken] = [finding async for finding in guarded(Topic.JOBS, section())]
    assert (fine.severity, broken.severity) == (Severity.OK, Severity.FAULT)
    assert "cannot write to its disk" in broken.detail


async def test_doctor_names_addresses_of_alerts_by_their_place(redis_url: str, sandbox_server: ServedSandbox) -> None:
    """An address unknown to apprise is a fault, a failing one a warning; neither is shown."""
    wanted = {
        "CALLKEEPER_ALERT_URLS": "slak://canary/x, json://u:canary@127.0.0.1:1/, page=json://u:canary@127.0.0.1:2/"
    }
    with Redis.from_url(redis_url) as redis:
        redis.hset(Keys().alert_targets, "3", "2026-11-22T12:00:00+00:00")
        redis.hset(Keys().alert_refusals, "3", "connection refused")
    found = await findings(environment(redis_url, sandbox_server) | wanted)
    told = {what: finding for what, finding in found.items() if what.startswith("alerts")}
    assert {what: finding.severity for what, finding in told.items()} == {
        "alerts CALLKEEPER_ALERT_URLS 1 (slak)": Severity.FAULT,
        "alerts CALLKEEPER_ALERT_URLS 3 (json)": Severity.WARNING,
    }
    assert "canary" not in str(found)
    assert told["alerts CALLKEEPER_ALERT_URLS 3 (json)"].detail.endswith("12:00:00 UTC: connection refused")


async def test_doctor_reminds_of_an_exchange_of_the_outcome_secret(
    redis_url: str, sandbox_server: ServedSandbox
) -> None:
    """While outcomes are signed with two secrets, the doctor warns."""
    two = "whsec_Y2FuYXJ5LW91dGNvbWUta2V5LTAxMjM0NTY3ODk=,whsec_bmV3LWNhbmFyeS1vdXRjb21lLWtleS0wMTIzNDU2Nzg5"
    wanted = {"CALLKEEPER_OUTCOME_URL": "https://core.example/x", "CALLKEEPER_OUTCOME_SECRET": two}
    found = await findings(environment(redis_url, sandbox_server) | wanted)
    assert found["settings CALLKEEPER_OUTCOME_SECRET"].severity is Severity.WARNING
    assert "whsec" not in str(found)


async def test_doctor_names_an_institution_for_which_nothing_is_done(
    redis_url: str, sandbox_server: ServedSandbox
) -> None:
    """Test mode, no voice authentication or not Active: the doctor says why nothing is done for the calls."""
    sandbox_server.control("PUT", "/institutions/cu-2", {"name": "Second", "is_test_mode": True})
    found = await findings(environment(redis_url, sandbox_server))
    assert found["institutions cu-1"].severity is Severity.OK
    assert found["institutions cu-2"].severity is Severity.WARNING
    assert found["institutions cu-2"].detail.endswith("it is in test mode")
    assert "CALLKEEPER_TEST_INSTITUTIONS" in found["institutions cu-2"].remedy
    found = await findings(environment(redis_url, sandbox_server) | {"CALLKEEPER_TEST_INSTITUTIONS": "cu-2"})
    assert found["institutions cu-2"].detail.endswith("handled although in test mode")


@contextmanager
def service_whose_clock_is(ahead_s: float | None) -> Iterator[str]:
    """Run something that answers with a Date so far ahead of the present, or with none; return its address."""

    def answer(_: httpx.Request) -> httpx.Response:
        date = {} if ahead_s is None else {"Date": formatdate(time.time() + ahead_s, usegmt=True)}
        return httpx.Response(404, headers=date)

    with serving(answer) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.mark.parametrize(
    ("ahead_s", "severity", "words"),
    [
        (0, Severity.OK, "the service "),
        (-12, Severity.WARNING, "the service -1"),
        (3605, Severity.WARNING, "the service +360"),
        (None, Severity.OK, "the service does not send its time"),
    ],
)
async def test_doctor_compares_the_clocks(
    redis_url: str, ahead_s: float | None, severity: Severity, words: str
) -> None:
    """A difference of clocks is a warning, because decisions do not depend on it."""
    async with AsyncRedis.from_url(redis_url) as redis:
        with service_whose_clock_is(ahead_s) as url:
            found = await clock_finding(redis, config_of(url))
    assert found.severity is severity
    assert words in found.detail


async def test_doctor_asks_for_the_time_as_workers_ask_the_service(redis_url: str) -> None:
    """Through the proxy, and with the bank's own authority: the clock of such a service would not be seen otherwise."""
    late = always(reply(404, Date=formatdate(time.time() - 3600, usegmt=True)))
    async with (
        AsyncRedis.from_url(redis_url) as redis,
        raw_service(late, server_tls("good")) as service,
        tunnel("bank:canary") as through,
    ):
        proxy = Proxy.of(f"http://bank:canary@127.0.0.1:{through.port}")
        url = service.url.replace("http:", "https:")
        found = await clock_finding(redis, config_of(url, ca_file=AUTHORITY, proxy=proxy))
    assert found.severity is Severity.WARNING
    assert "the service -3" in found.detail
    assert set(through.asked) == {f"127.0.0.1:{service.port}"}
    assert "canary" not in str(service.arrivals)


def many(sandbox: ServedSandbox, count: int) -> None:
    """Let the account manage so many institutions."""
    for number in range(1, count + 1):
        sandbox.control("PUT", f"/institutions/cu-{number}", {"name": f"Number {number}"})


@pytest.mark.parametrize(("status", "why"), [(503, "does not answer"), (429, "limits our requests (429)")])
async def test_institutions_that_were_not_asked_for_are_not_blamed(
    redis_url: str, sandbox_server: ServedSandbox, status: int, why: str
) -> None:
    """If the service says nothing of the first, the others are not asked for: one line says so, and accuses none."""
    many(sandbox_server, 40)
    sandbox_server.fault("institutions", "answer", status=503)
    sandbox_server.fault("institution", "answer", status=status)
    [unasked, *_] = found = [
        finding
        async for finding in examine(environment(redis_url, sandbox_server), only="worker")
        if finding.topic is Topic.INSTITUTIONS and "list cannot" not in finding.detail
    ]
    assert unasked.detail == f"the state of 37 institutions was not asked: the service {why}"
    assert {finding.about for finding in found[1:]} == {"cu-1", "cu-10", "cu-11"}


class Between:
    """Stands between doctor and service: it counts listings, and lets only so many through together."""

    def __init__(self, sandbox: ServedSandbox, *, together: int = 1) -> None:
        self._url = httpx.URL(sandbox.url)
        self._round = Barrier(together)
        self._lock = Lock()
        self._open = self.most_open = 0
        self.asked_at_s: list[float] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        """Pass a request on, a listing with others."""
        if not request.url.path.endswith("/queue"):
            return self._pass_on(request)
        with self._lock:
            self.asked_at_s.append(time.monotonic())
            self._open += 1
            self.most_open = max(self.most_open, self._open)
        try:
            self._round.wait(10)
            return self._pass_on(request)
        finally:
            with self._lock:
                self._open -= 1

    def _pass_on(self, request: httpx.Request) -> httpx.Response:
        url = self._url.copy_with(raw_path=request.url.raw_path)
        return httpx.request(request.method, url, headers=request.headers, content=request.content, verify=TLS)


async def test_queues_are_asked_for_some_at_once(redis_url: str, sandbox_server: ServedSandbox) -> None:
    """Slow queues do not add up: eight are asked for together, and no more. Here none is answered before."""
    many(sandbox_server, 40)
    between = Between(sandbox_server, together=AT_ONCE)
    with serving(between) as port:
        environ = environment(redis_url, sandbox_server) | {"CALLKEEPER_SERVICE_URL": f"http://127.0.0.1:{port}"}
        found = await findings(environ, "worker")
    queues = [finding for finding in found.values() if finding.topic is Topic.QUEUE]
    assert [finding.severity for finding in queues] == 40 * [Severity.OK]
    assert between.most_open == AT_ONCE


async def test_doctor_keeps_to_the_request_limit(redis_url: str, sandbox_server: ServedSandbox) -> None:
    """It takes a permit for each queue, as workers do."""
    many(sandbox_server, 16)
    between = Between(sandbox_server)
    began_s = time.monotonic()
    with serving(between) as port:
        environ = environment(redis_url, sandbox_server)
        environ |= {"CALLKEEPER_SERVICE_URL": f"http://127.0.0.1:{port}", "CALLKEEPER_SERVICE_RPS": "5"}
        await findings(environ, "worker")
    assert len(between.asked_at_s) == 16
    assert between.asked_at_s[-1] - began_s > 3, "seventeen requests at five a second, with the list of institutions"

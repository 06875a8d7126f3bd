"""Incidents as they happen to real processes, and what the board, the doctor, metrics, alerts and /readyz have to say."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from html import unescape
from typing import Any

import httpx
from click.testing import CliRunner
from redis import Redis

from callkeeper.cli import main
from callkeeper.demo import service_environment
from tests.acceptance.stack import Stack, end, until
from tests.integration.figures.watching import alerts
from tests.promql.evaluation import evaluate
from tests.promql.history import History

WITHIN_S = 15.0
"""Everybody says what is wrong within this time, and that it is over."""

_LENIENT = 25.0
"""How long a test waits on a machine that does a lot besides."""


@dataclass(frozen=True)
class Case:
    """One incident.

    ``happens`` lasts as long as its block. ``title`` is what the board says, ``kind`` the metric's label, ``doctor`` the
    line that is no ``ok``, ``alert`` what Prometheus would raise once its time has passed, ``ready`` what /readyz answers.
    ``blind``: nothing of Redis can be read, so the board and /metrics have only that to say.
    """

    name: str
    happens: Callable[[Stack], AbstractContextManager[None]]
    title: str
    kind: str
    doctor: str
    alert: str
    ready: int = 200
    blind: bool = False


class Watchers:
    """Those who look at an installation."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        user, _, password = stack.demo.admin.partition(":")
        self.http = httpx.Client(base_url=stack.demo.web_url, auth=(user, password), trust_env=False, timeout=10)

    def board(self) -> str:
        """Return the board's page."""
        return unescape(self.http.get("/board").text)

    def alarms(self) -> str:
        """Return what needs a human."""
        return self.board().partition('id="alarms"')[2].partition("</section>")[0]

    def metrics(self) -> str:
        """Return what is exported; empty where Redis does not answer."""
        answer = self.http.get("/metrics")
        return answer.text if answer.status_code == 200 else ""

    def kinds(self) -> set[str]:
        """Return the incidents that metrics tell."""
        lines = [line for line in self.metrics().splitlines() if line.startswith("callkeeper_incident{")]
        return {line.partition('kind="')[2].partition('"')[0] for line in lines if line.endswith(" 1.0")}

    def raised(self) -> set[str]:
        """Return the alerts whose condition holds."""
        history = History()
        history.record(0.0, self.metrics() or None)
        return {alert.name for alert in alerts() if evaluate(alert.tree, history, 0.0)}

    def doctor(self, **changed: str) -> dict[str, str]:
        """Return the doctor's lines that are no ``ok``, by what they are about, with the remedy."""
        environ = {**self.stack.demo.environ, **changed}
        told = CliRunner().invoke(main, ["doctor", "--json"], env=dict(environ))
        rows = [json.loads(line) for line in told.stdout.splitlines()]
        return {row["what"]: f"{row['detail']}: {row['remedy']}" for row in rows if row["state"] != "ok"}

    def ready(self) -> int:
        """Return what /readyz answers."""
        return self.http.get("/readyz").status_code


def assert_told(case: Case, stack: Stack) -> float:
    """Let an incident happen; everybody names it in time, nobody anything else, and it ends. Return how long it took."""
    watchers = Watchers(stack)
    try:
        return _told(case, watchers)
    finally:
        watchers.http.close()


def _told(case: Case, watchers: Watchers) -> float:
    stack = watchers.stack
    until(lambda: "Nothing needs a human" in watchers.board(), 30, "a board without alarms")
    with case.happens(stack):
        began = time.monotonic()
        until(lambda: case.title in watchers.board(), _LENIENT, f"the board to say {case.title!r}")
        until(lambda: watchers.ready() == case.ready, _LENIENT, f"/readyz to answer {case.ready}")
        took_s = time.monotonic() - began
        if not case.blind:
            assert watchers.kinds() == {case.kind}
            assert watchers.alarms().count('<li id="a-') == 1, "the cause alone"
            assert f"/board/operations#incident-{case.kind.replace('_', '-')}" in watchers.alarms()
        assert watchers.raised() - {"CallkeeperRedisMemory"} == {case.alert}
        assert case.doctor in watchers.doctor()
    until(lambda: "Nothing needs a human" in watchers.board(), _LENIENT, "the alarm to end")
    until(lambda: watchers.ready() == 200, _LENIENT, "/readyz to be ready")
    until(lambda: not watchers.raised(), _LENIENT, "the alert to end")
    return took_s


@contextmanager
def workers_dead(stack: Stack) -> Iterator[None]:
    """Kill every worker; another one is started in the end."""
    for member in stack.demo.fleet.members:
        if member.name.startswith("worker") and member.is_running:
            member.kill()
    try:
        yield
    finally:
        start_worker(stack)


def start_worker(stack: Stack, **changed: str) -> Any:
    """Start one more worker of the stack."""
    environ = {"REDIS_URL": stack.redis_url, "CALLKEEPER_LOG_FORMAT": "json", **service_environment(stack.service_url)}
    return stack.demo.fleet.start(f"worker-{len(stack.demo.fleet.members)}", "worker", environ={**environ, **changed})


@contextmanager
def redis_full(stack: Stack) -> Iterator[None]:
    """Give Redis no room for another byte."""
    stack.redis.config_set("maxmemory", 1)
    try:
        yield
    finally:
        stack.redis.config_set("maxmemory", 0)


@contextmanager
def redis_frozen(stack: Stack) -> Iterator[None]:
    """Let Redis stand still with its connections open."""
    with Redis.from_url(stack.redis_url) as redis:
        pid = redis.info()["process_id"]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def trouble(*targets: str, action: str = "answer", **more: object) -> Callable[[Stack], AbstractContextManager[None]]:
    """Return an incident of the stand-in's faults."""

    @contextmanager
    def happens(stack: Stack) -> Iterator[None]:
        for target in targets:
            stack.fault(target, action, **more)
        try:
            yield
        finally:
            stack.lift_faults()

    return happens


@contextmanager
def login_refused(stack: Stack) -> Iterator[None]:
    """Have the token lapse and the next login refused; a new worker tries at once what was corrected."""
    stack.fault("token", "refused")
    stack.redis.delete("ck:token")
    try:
        yield
    finally:
        stack.lift_faults()
        stack.redis.delete("ck:token:gate")  # as new credentials would have it


@contextmanager
def header_wrong(stack: Stack) -> Iterator[None]:
    """Send pushes with another header than ours; a sample with the right one ends it."""
    time.sleep(2)  # counts are written once a second: the last sample was before
    event = {"Type": "CallStart", "VoiceId": "v-wrong", "InstitutionKey": "cu-1"}
    for _ in range(3):
        assert httpx.post(f"{stack.demo.web_url}/push", json=event, headers={"X-Push-Key": "w"}).status_code in {
            401,
            429,
        }
    try:
        yield
    finally:
        time.sleep(2)  # refused and taken are told apart by the second
        stack.control("POST", "/push/sample", {"institution_key": "cu-1"})


@contextmanager
def faulty_rules(stack: Stack) -> Iterator[None]:
    """Start a worker whose rules file is faulty; a second one of this machine starts."""
    path = stack.data / "faulty.toml"
    path.write_text("[nonsense]\n", encoding="utf-8")
    start_worker(stack, CALLKEEPER_RULES=str(path)).process.wait(30)
    try:
        yield
    finally:
        start_worker(stack)


@contextmanager
def other_rules(stack: Stack) -> Iterator[None]:
    """Run a worker that checks at other times than the others."""
    worker = start_worker(stack, CALLKEEPER_CHECK_AT="1,2,4,8,16,32")
    try:
        yield
    finally:
        worker.stop()


@contextmanager
def older_release(stack: Stack) -> Iterator[None]:
    """Run a process that reports as releases did that told no version."""
    stack.redis.hset("ck:process:old-1-a", mapping={"kind": "worker", "memory": 1, "since": int(time.time() * 1000)})
    stack.redis.zadd("ck:processes", {"old-1-a": time.time() * 1000 + 60_000})
    try:
        yield
    finally:
        stack.redis.zrem("ck:processes", "old-1-a")


@contextmanager
def listings_refused(stack: Stack) -> Iterator[None]:
    """Refuse the queue of an institution with a live call: others are listed once a minute only."""
    stack.call(end(90))
    with trouble("queue", status=403, institution_key="cu-1")(stack):
        yield


INCIDENTS = (
    Case("workers dead", workers_dead, "No worker is alive", "no_worker", "workers", "CallkeeperNoWorker"),
    Case(
        *("Redis full", redis_full, "Redis refuses writes: it is full", "redis_refuses", "redis writes"),
        *("CallkeeperRedisRefusesWrites", 503),
    ),
    Case(
        "login refused",
        login_refused,
        "The service refuses our login",
        "login_refused",
        "login",
        "CallkeeperLoginRefused",
    ),
    Case(
        *("push header wrong", header_wrong, "Pushes are refused: wrong header", "pushes_refused", "pushes"),
        "CallkeeperPushesRefused",
    ),
    Case("Redis frozen", redis_frozen, "Redis does not answer", "", "redis", "CallkeeperDown", 503, blind=True),
    Case(
        *("service unreachable", trouble("*", status=503), "The service is away", "service_away", "breaker"),
        "CallkeeperServiceAway",
    ),
    Case(
        *("service slow", trouble("*", action="pass", latency_s=2.5), "The service is slow", "service_slow", "service"),
        "CallkeeperServiceSlow",
    ),
    Case(
        "service limits requests",
        trouble("queue", status=429, headers={"Retry-After": "15"}, institution_key="cu-1", times=1),
        *("The service limits our requests", "rate_limited", "breaker cu-1", "CallkeeperInstitutionTrouble"),
    ),
    Case(
        *("one institution refused", trouble("*", action="unauthorized", institution_key="cu-1")),
        *("The service refuses an institution", "institution_refused", "breaker cu-1", "CallkeeperInstitutionTrouble"),
    ),
    Case(
        *("listings refused", listings_refused),
        *("The service does not list", "listing_refused", "queue cu-1", "CallkeeperInstitutionTrouble"),
    ),
    Case(
        "faulty rulebook",
        faulty_rules,
        "A worker process did not start",
        "not_started",
        "settings",
        "CallkeeperNotStarted",
    ),
    Case(
        *("other rules", other_rules, "Worker processes go by different rules", "rules_differ", "rules"),
        "CallkeeperProcessesDiffer",
    ),
)
FREQUENT = INCIDENTS[:4]
"""Those that happen most often: tried with every change, all of them every night."""

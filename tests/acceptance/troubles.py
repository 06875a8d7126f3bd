"""Troubles of a running installation. Each lasts as long as its block and is repaired at its end."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from textwrap import dedent
from threading import Event

import httpx
from click.testing import CliRunner
from redis import Redis

from callkeeper.app.cli import main
from callkeeper.app.settings import WorkerSettings
from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.metrics.counting import field_name
from callkeeper.calls.metrics.signals import BEGAN
from callkeeper.calls.store.keys import Keys
from callkeeper_sandbox.demo.embedded_redis import find_server
from callkeeper_sandbox.demo.fleet import ManagedProcess
from tests.harness.courier import receiving
from tests.harness.processes import Stack, checking_at, end
from tests.waiting import until


@contextmanager
def workers_dead(stack: Stack) -> Iterator[None]:
    """Kill every worker; start as many at the end."""
    killed = workers_of(stack)
    for member in killed:
        member.kill()
    try:
        yield
    finally:
        for _ in killed:
            stack.start("worker")


@contextmanager
def web_dead(stack: Stack) -> Iterator[None]:
    """Kill the web process while calls come whose pushes reach nobody; start it again at the same address."""
    for member in stack.demo.fleet.members:
        if member.name.startswith("web") and member.is_running:
            member.kill()
    for _ in range(3):
        stack.call(end(60), key=UNPUSHED)
    try:
        yield
    finally:
        stack.start("web", port=httpx.URL(stack.demo.web_url).port or 0)


@contextmanager
def redis_emptied(stack: Stack) -> Iterator[None]:
    """Empty Redis during a pause, as a replaced disk would; resume at the end."""
    pausing = ["--operator", "ops", "--reason", "a drill"]

    def run(command: str) -> None:
        told = CliRunner().invoke(main, [command, *pausing], env=dict(stack.demo.environ))
        assert told.exit_code == 0, told.output

    run("pause")
    time.sleep(2)  # the processes see it
    stack.redis.flushall()
    until(lambda: stack.redis.exists("ck:2:rules"), 60, "a worker to say which rules are in force")
    try:
        yield
    finally:
        run("resume")


def workers_of(stack: Stack) -> list[ManagedProcess]:
    """Return the running workers."""
    return [member for member in stack.demo.fleet.members if member.name.startswith("worker") and member.is_running]


@contextmanager
def redis_full(stack: Stack) -> Iterator[None]:
    """Set Redis's memory limit so low that it refuses writes."""
    stack.redis.config_set("maxmemory", 1)
    try:
        yield
    finally:
        stack.redis.config_set("maxmemory", 0)


@contextmanager
def redis_frozen(stack: Stack) -> Iterator[None]:
    """Freeze Redis with its connections open."""
    with Redis.from_url(stack.redis_url) as redis:
        pid = redis.info()["process_id"]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def trouble(*targets: str, action: str = "answer", **more: object) -> Callable[[Stack], AbstractContextManager[None]]:
    """Return a trouble that consists of faults of the sandbox."""

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
    """Delete the token while the only worker has a wrong password. At the end start one with the right password."""
    for member in workers_of(stack):
        member.stop()
    stack.redis.delete("ck:token")
    wrong = stack.start("worker", waits=False, environ={"CALLKEEPER_PASSWORD": "not-the-password"})
    try:
        yield
    finally:
        wrong.stop()
        stack.start("worker")


@contextmanager
def account_locked(stack: Stack) -> Iterator[None]:
    """Delete the token and have the service refuse our login. At the end accept it, and retry with the command."""
    stack.call(end(40))
    stack.fault("token", "refused")
    stack.redis.delete("ck:token")
    try:
        yield
    finally:
        stack.lift_faults()
        told = CliRunner().invoke(main, ["service", "retry"], env=dict(stack.demo.environ))
        assert told.exit_code == 0, told.output


UNPUSHED = "bank-1"
"""An institution that no other trouble has calls of."""


def until_pushes_count(stack: Stack, key: str) -> None:
    """Wait until calls of an institution count that come without a push.

    That is ten seconds after web began or Redis lost its data, and after the first look at the queue.
    """
    listed = field_name(figure.LISTINGS.name, (key, "answered"))

    def may_count() -> bool:
        seconds, micros = stack.redis.time()
        began, listed_at = stack.redis.hmget(Keys().counted, BEGAN, listed)
        return listed_at is not None and seconds + micros / 1e6 - float(began or 0) / 1000 > 11

    until(may_count, 40, "calls without a push to count")


@contextmanager
def header_wrong(stack: Stack) -> Iterator[None]:
    """Push with a wrong header in the dashboard while calls come; at the end correct it, and send a sample."""
    time.sleep(2)  # metrics are written once a second: wait until those of the last sample are
    until_pushes_count(stack, UNPUSHED)
    address, place = {"url": f"{stack.demo.web_url}/push"}, f"/institutions/{UNPUSHED}/push"
    stack.control("PUT", place, {**address, "headers": "X-Push-Key: wrong"})
    for _ in range(3):
        stack.call(end(20), key=UNPUSHED)
    try:
        yield
    finally:
        time.sleep(2)  # refused and accepted pushes are compared by whole seconds
        stack.control("PUT", place, {**address, "headers": stack.demo.environ["CALLKEEPER_PUSH_HEADERS"]})
        stack.control("POST", "/push/sample", {"institution_key": UNPUSHED})


@contextmanager
def faulty_rules(stack: Stack) -> Iterator[None]:
    """Start a worker with a faulty rules file. At the end start one with a correct file."""
    path = stack.data / "faulty.toml"
    path.write_text("[nonsense]\n", encoding="utf-8")
    stack.start("worker", waits=False, environ={"CALLKEEPER_RULES": str(path)}).process.wait(30)
    try:
        yield
    finally:
        stack.start("worker")


@contextmanager
def other_rules(stack: Stack) -> Iterator[None]:
    """Run a worker whose check times differ from those of the others."""
    worker = stack.start("worker", environ=checking_at(stack.data, 1, 2, 4, 8, 16, 32))
    try:
        yield
    finally:
        worker.stop()


@contextmanager
def other_settings(stack: Stack) -> Iterator[None]:
    """Run a worker that acts for one institution only, unlike the others."""
    worker = stack.start("worker", environ={"CALLKEEPER_INSTITUTIONS": "cu-1"})
    try:
        yield
    finally:
        worker.stop()


@contextmanager
def other_installation(stack: Stack) -> Iterator[None]:
    """Let workers under another prefix say that they work with our account, as if they had started without Redis."""
    use = WorkerSettings.load({**stack.demo.environ, "CALLKEEPER_REDIS_PREFIX": "ck2"}).account_use()
    is_over = Event()

    def go_on() -> None:
        with Redis.from_url(stack.redis_url) as redis:
            while not is_over.wait(1):
                use.note(redis)
            use.end(redis)

    with ThreadPoolExecutor(1) as thread:
        working = thread.submit(go_on)
        try:
            yield
        finally:
            is_over.set()
            working.result()


@contextmanager
def other_release(stack: Stack) -> Iterator[None]:
    """Run a worker of another release."""
    code = """
        from importlib import metadata
        version = metadata.version
        metadata.version = lambda name: "0.0.9" if name == "callkeeper" else version(name)
    """
    with worker_with(stack, code):
        yield


@contextmanager
def clock_ahead(stack: Stack) -> Iterator[None]:
    """Run a worker whose clock is two minutes ahead of Redis's."""
    code = """
        import time
        right = time.time
        time.time = lambda: right() + 120
    """
    with worker_with(stack, code):
        yield


@contextmanager
def worker_with(stack: Stack, code: str) -> Iterator[None]:
    """Run a worker that executes some code at its start."""
    folder = stack.data / f"code-{len(stack.demo.fleet.members)}"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(dedent(code), encoding="utf-8")
    worker = stack.start("worker", waits=False, environ={"PYTHONPATH": str(folder)})
    try:
        yield
    finally:
        worker.stop()


@contextmanager
def receiver_down(stack: Stack) -> Iterator[None]:
    """Have the only worker send webhooks to a receiver that answers 503. At the end the receiver accepts them."""
    for member in workers_of(stack):
        member.stop()
    with receiving() as receiver:
        receiver.status = lambda: 503
        worker = stack.start("worker", environ=receiver.worker_environ)
        calls = [stack.call({"kind": "green", "after_s": 1}, end(3)) for _ in range(3)]
        stack.settled(calls[0])
        try:
            yield
            receiver.status = lambda: 204
            until(lambda: "The webhook receiver does not answer" not in _board(stack), 30, "webhooks to be accepted")
        finally:
            worker.stop()
            stack.start("worker")


def _board(stack: Stack) -> str:
    user, _, password = stack.demo.admin.partition(":")
    return httpx.get(f"{stack.demo.web_url}/board", auth=(user, password), trust_env=False).text


@contextmanager
def redis_killed(stack: Stack) -> Iterator[None]:
    """Kill Redis, and start it again with its append-only file."""
    folder, port = stack.redis.config_get("dir")["dir"], stack.redis.connection_pool.connection_kwargs["port"]
    os.kill(stack.redis.info()["process_id"], signal.SIGKILL)
    try:
        yield
    finally:
        options = ("--bind", "127.0.0.1", "--port", str(port), "--dir", folder, "--appendonly", "yes", "--save", "")
        log = stack.data / "redis-again.log"
        with log.open("wb") as sink:
            again = subprocess.Popen([find_server(), *options], stdout=sink, stderr=subprocess.STDOUT)  # noqa: S603
        stack.demo.fleet.members.insert(0, ManagedProcess("redis-again", again, log))  # first, so that it ends last


@contextmanager
def service_unreachable(stack: Stack) -> Iterator[None]:
    """Answer every request with 503 while calls are live. Without calls, workers would notice the outage later."""
    for key in ("bank-1", "cu-1", "cu-2"):
        stack.call(end(40), key=key)
    with trouble("*", status=503)(stack):
        yield


@contextmanager
def listings_refused(stack: Stack) -> Iterator[None]:
    """Refuse the queue of an institution with a live call. Without live calls, it is listed only once a minute."""
    stack.call(end(90))
    with trouble("queue", status=403, institution_key="cu-1")(stack):
        yield

"""Troubles of a running installation. Each lasts as long as its block and is repaired at its end."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from textwrap import dedent

import httpx
from redis import Redis

from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.metrics.counting import field_name
from callkeeper.calls.metrics.signals import BEGAN
from callkeeper.calls.store.keys import Keys
from callkeeper_sandbox.demo.fleet import ManagedProcess
from tests.harness.courier import receiving
from tests.harness.processes import Stack, end
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
def service_unreachable(stack: Stack) -> Iterator[None]:
    """Answer every request with 503 while calls are live. Without calls, workers would notice the outage later."""
    for key in ("bank-1", "cu-1", "cu-2"):
        stack.call(end(40), key=key)
    with trouble("*", status=503)(stack):
        yield

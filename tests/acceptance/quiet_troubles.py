"""Troubles in which everything answers, and a process that vanishes. Each ends with the block, by a first good sign."""

import asyncio
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from threading import Event

from redis.asyncio import Redis

from callkeeper.calls.incident import IncidentKind
from callkeeper.calls.incident_detection import incidents_of
from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.metrics.counting import field_name
from callkeeper.calls.metrics.signals import SignalReader
from callkeeper.calls.missing_pushes import REFUSED_WITHIN
from callkeeper.calls.store.acknowledging import Acknowledging
from callkeeper.calls.store.keys import Keys
from callkeeper_sandbox.service import population
from tests.acceptance.troubles import until_pushes_count
from tests.harness.processes import Stack, end
from tests.waiting import until

ELSEWHERE = "cu-2"
"""An institution that few other troubles have calls of."""


def _good_call(stack: Stack, key: str = ELSEWHERE) -> None:
    stack.call({"kind": "green", "after_s": 1}, end(20), key=key)


@contextmanager
def voices_pending(stack: Stack) -> Iterator[None]:
    """Have the provider evaluate the voices of three calls for ever; then it recognises one."""
    for _ in range(3):
        stack.call({"kind": "pending", "after_s": 1}, end(100), key=ELSEWHERE)
    yield
    _good_call(stack)


@contextmanager
def calls_unlisted(stack: Stack) -> Iterator[None]:
    """Push three calls of numbers that the queue leaves out; then a call that it lists."""
    phones = [population.phone(ELSEWHERE, population.MEMBERS + number) for number in range(3)]
    stack.control("PUT", f"/institutions/{ELSEWHERE}/ignored", phones)
    for phone in phones:
        stack.control("POST", "/calls", {"institution_key": ELSEWHERE, "phone_number": phone, "script": [end(60)]})
    try:
        yield
    finally:
        stack.control("PUT", f"/institutions/{ELSEWHERE}/ignored", [])
        _good_call(stack)


@contextmanager
def requests_fail_between_others(stack: Stack) -> Iterator[None]:
    """Answer one request for details with 502 every half second: never so many in a row that a breaker opens."""
    for key in ("cu-1", "cu-2", "bank-1"):
        for _ in range(3):
            stack.call(end(60), key=key)
    is_over = Event()

    def disturb() -> None:
        while not is_over.wait(0.5):
            stack.fault("details", "answer", status=502, times=1)

    with ThreadPoolExecutor(1) as thread:
        disturbing = thread.submit(disturb)
        try:
            yield
        finally:
            is_over.set()
            disturbing.result()
            stack.lift_faults()


@contextmanager
def in_review(stack: Stack) -> Iterator[None]:
    """Put an institution with a live call into review, and make it Active again."""
    stack.call(end(300), key=ELSEWHERE)
    _name_as(stack, "Review")
    try:
        yield
    finally:
        _name_as(stack, "Active")


def _name_as(stack: Stack, status: str) -> None:
    name, core = population.INSTITUTIONS[ELSEWHERE]
    push = {"url": f"{stack.demo.web_url}/push", "headers": stack.demo.environ["CALLKEEPER_PUSH_HEADERS"]}
    stack.control("PUT", f"/institutions/{ELSEWHERE}", {"name": name, "core": core, "status": status, "push": push})


@contextmanager
def worker_killed(stack: Stack) -> Iterator[None]:
    """Kill one of the workers; start another at the end."""
    worker = stack.start("worker")
    worker.kill()
    try:
        yield
    finally:
        stack.start("worker")


@contextmanager
def worker_cut_off(stack: Stack) -> Iterator[None]:
    """Start a worker that cannot reach the service, and stop it at the end. Each of the calls meanwhile is assigned."""
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
    calls, is_over = [], Event()

    def begin_calls() -> None:
        while not is_over.wait(0.3):
            calls.append(stack.call(end(20), key=ELSEWHERE))

    worker = stack.start("worker", environ={"CALLKEEPER_PROXY": url})
    with ThreadPoolExecutor(1) as thread:
        beginning = thread.submit(begin_calls)
        try:
            yield
            assert f":{worker.process.pid} cannot reach the service; others can" in asyncio.run(_titles(stack))
        finally:
            is_over.set()
            beginning.result()
            worker.stop()
    until(lambda: all(stack.arrived(call).get("assign") for call in calls), 30, "every call to be assigned")


async def _titles(stack: Stack) -> str:
    async with Redis.from_url(stack.redis_url) as redis:
        return " ".join(incident.title for incident in incidents_of(await SignalReader(redis, Keys()).read()))


@contextmanager
def policies_unheard_of(stack: Stack) -> Iterator[None]:
    """Have three calls show a policy that nobody has classified; then one shows a known one."""
    for _ in range(3):
        stack.call({"kind": "policy", "after_s": 1, "text": "Mauve Unheard"}, end(40), key=ELSEWHERE)
    yield
    _good_call(stack)


@contextmanager
def pushes_unreadable(stack: Stack) -> Iterator[None]:
    """Push three bodies that are no events, with the right header; then somebody knows of it."""
    for body in (1, 2, 3):
        stack.push(body, ELSEWHERE)
    yield
    asyncio.run(_acknowledge(stack, IncidentKind.ASSUMPTION_WRONG))


async def _acknowledge(stack: Stack, kind: IncidentKind) -> None:
    async with Redis.from_url(stack.demo.redis_url) as redis:
        await Acknowledging(redis, Keys()).acknowledge(kind, "", operator="ann", lasts=timedelta(hours=1))


@contextmanager
def pushes_dropped(stack: Stack) -> Iterator[None]:
    """Send the pushes of one institution to a port where nobody listens, as if a firewall dropped them."""
    until_pushes_count(stack, ELSEWHERE)
    refused = field_name(figure.PUSHES_REFUSED.name, ("credentials",))

    def is_history() -> bool:
        refused_at_s = float(stack.redis.hget(Keys().counted, refused) or 0) / 1000
        return time.time() - refused_at_s > REFUSED_WITHIN.total_seconds()

    until(is_history, 40, "a wrong header to be no explanation")
    _push_to(stack, "http://127.0.0.1:9", stack.demo.environ["CALLKEEPER_PUSH_HEADERS"])
    for _ in range(3):
        stack.call(end(40), key=ELSEWHERE)
    try:
        yield
    finally:
        _push_to(stack, f"{stack.demo.web_url}/push", stack.demo.environ["CALLKEEPER_PUSH_HEADERS"])
        _good_call(stack)


@contextmanager
def one_header_wrong(stack: Stack) -> Iterator[None]:
    """Push for one institution with a wrong header, while those of another are accepted."""
    until_pushes_count(stack, ELSEWHERE)
    address = f"{stack.demo.web_url}/push"
    _push_to(stack, address, "X-Push-Key: wrong")
    for _ in range(3):
        stack.call(end(40), key=ELSEWHERE)
        stack.call(end(40))
    try:
        yield
    finally:
        _push_to(stack, address, stack.demo.environ["CALLKEEPER_PUSH_HEADERS"])
        _good_call(stack)


def _push_to(stack: Stack, url: str, headers: str) -> None:
    stack.control("PUT", f"/institutions/{ELSEWHERE}/push", {"url": url, "headers": headers})

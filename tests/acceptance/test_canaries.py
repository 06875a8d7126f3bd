"""With real processes: personal data and secrets of the sandbox appear nowhere in what callkeeper stores or shows.

Every address of the web process is requested: pages, data, streams, metrics. The application itself lists them, so that
new ones are included.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import structlog
from flask import Flask
from starlette.routing import Mount, Route

from callkeeper.app.settings import WebSettings
from callkeeper.app.web_app import web_app
from callkeeper_sandbox.service import population
from callkeeper_sandbox.service.access import Credentials
from callkeeper_sandbox.service.state import PushSettings
from callkeeper_sandbox.service.world import World
from tests.acceptance.test_desk import TOKEN
from tests.harness.courier import SECRET, receiving
from tests.harness.desk_tokens import give_token
from tests.harness.processes import KEY, Stack, end, stack
from tests.waiting import until

SENSITIVE = {
    *("fullSsn", "supportPassword", "dateOfBirth", "licenseNumber", "number"),
    *("edgeAccessKey", "coreTypeBAdminPassword", "coreTypeAPassword", "authenticationValue"),
}
STREAMS_FOR_S = 1.0


@dataclass(frozen=True)
class Traces:
    """Everything that a stack of processes stored and showed, by place."""

    stack: Stack
    texts: dict[str, bytes]
    asked: dict[str, int]
    """The lowest status of a GET of each address."""
    token: bytes
    """The service's token, as stored in its own key."""


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traces]:
    """Run calls of several kinds through a stack with all features, and collect everything."""
    data = tmp_path_factory.mktemp("canaries")
    with (
        receiving() as receiver,
        stack(data, workers=1, worker_environ=receiver.worker_environ, forked=False) as running,
    ):
        give_token(running.redis, "desktop", TOKEN)
        calls = _live(running)
        texts, asked = _shown(running, calls)
        texts |= {"Redis": _everything_in(running.redis), "outcomes": json.dumps(receiver.taken).encode()}
        texts |= {f"arguments of {m.name}": _arguments(m.process.pid) for m in running.demo.members}
        token = repr(running.redis.hgetall("ck:token")).encode()
        for member in running.demo.members:
            member.stop()
        texts |= {f"log of {m.name}": m.log.read_bytes() for m in running.demo.members if m.name != "sandbox"}
        texts |= {f"file {path.name}": path.read_bytes() for path in (data / "redis").rglob("*") if path.is_file()}
        yield Traces(running, texts, asked, token)


def _live(stack: Stack) -> list[dict[str, Any]]:
    """Run calls and faults of several kinds; one call stays live."""
    calls = [
        stack.call({"kind": "mfa_validated", "after_s": 1}, end(4)),
        stack.call({"kind": "green", "after_s": 1}, end(4)),
        stack.call({"kind": "red", "after_s": 1}, end(4)),
    ]
    for target, action in (("details", "error"), ("check", "error"), ("queue", "garbage"), ("assign", "drop")):
        try:
            stack.fault(target, action, times=1)
        except httpx.HTTPStatusError:
            continue  # not every target has this action
    with httpx.Client(trust_env=False) as stranger:
        push = f"{stack.demo.web_url}/push"
        stranger.post(push, json={"Type": "x"}, headers={"X-Push-Key": "canary-wrong-key"})
        stranger.post(push, content=b"{", headers={"X-Push-Key": "canary-wrong-key"})
    for call in calls:
        stack.settled(call)
    calls.append(stack.call(end(60)))
    until(lambda: stack.arrived(calls[-1]).get("assign"), 15, "a live call")
    return calls


def _shown(stack: Stack, calls: list[dict[str, Any]]) -> tuple[dict[str, bytes], dict[str, int]]:
    """Request every address as a person, as the desk's software, and without a login."""
    user, _, password = stack.demo.admin.partition(":")
    texts: dict[str, bytes] = {}
    asked: dict[str, int] = {}
    ways: dict[str, dict[str, Any]] = {
        "watcher": {"auth": (user, password)},
        "desk": {"headers": {"Authorization": f"Bearer {TOKEN}"}},
        "stranger": {},
    }
    for path in sorted({_filled(template, call) for template in templates(stack) for call in (calls[0], calls[-1])}):
        for way, options in ways.items():
            with httpx.Client(base_url=stack.demo.web_url, trust_env=False, **options) as client:
                status, body = _read(client, path)
            texts[f"{path} to the {way}"] = body
            asked[path] = min(asked.get(path, 999), status)
    return texts, asked


def _read(client: httpx.Client, path: str) -> tuple[int, bytes]:
    """Return the status and answer of an address; of a stream, what arrives within a moment."""
    body = b""
    try:
        with client.stream("GET", path, timeout=httpx.Timeout(10, read=STREAMS_FOR_S)) as answer:
            status, body = answer.status_code, str(answer.headers).encode()
            for chunk in answer.iter_raw():
                body += chunk
    except httpx.ReadTimeout:
        pass
    return status, body


def templates(stack: Stack) -> set[str]:
    """Return every address of the web process, as the application itself lists them."""
    settings = WebSettings.load(
        {
            "REDIS_URL": stack.demo.redis_url,
            "CALLKEEPER_PUSH_HEADERS": "X-Push-Key: canary-push-1f8b32d9-4c07a65e93d2",
            "CALLKEEPER_ADMIN": stack.demo.admin,
        }
    )
    log: Any = structlog.wrap_logger(None, processors=[structlog.testing.LogCapture()])
    return set(templates_of(web_app(settings, log), ""))


def templates_of(app: Any, prefix: str) -> Iterator[str]:
    """Yield the addresses of an application, inside any wrappers."""
    if isinstance(app, Flask):
        yield from (prefix + re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule.rule) for rule in app.url_map.iter_rules())
        return
    if not hasattr(app, "routes"):
        inner = getattr(app, "app", None) or getattr(app, "_app", None)
        yield from templates_of(inner, prefix) if inner is not None else ()
        return
    for route in app.routes:
        if isinstance(route, Mount):
            yield from templates_of(route.app, prefix + route.path)
        elif isinstance(route, Route):
            below = set(templates_of(getattr(route.endpoint, "_app", None), prefix))
            yield from below or {prefix + route.path}


def _filled(template: str, call: dict[str, Any]) -> str:
    """Return an address with a call's ids, and sample values for the dashboard's parameters."""
    values = {
        "institution": call["institution_key"],
        "voice_id": call["voice_id"],
        "instance_number": "0",
        "queue_name": "calls:2",
        "registry_name": "finished",
        "per_page": "8",
        "order": "asc",
        "page": "1",
        "wish": "w",
        "name": "board.css",
        "filename": "css/main.css",
    }
    return re.sub(r"\{(\w+)(?::\w+)?\}", lambda found: values.get(found[1], "x"), template)


def _arguments(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def _sensitive_words() -> set[str]:
    """Return the sandbox's invented personal data and secrets, which are the same in every process."""
    world = World()
    population.settle(world, PushSettings())
    return set(_words(msgspec.to_builtins(world.state, str_keys=True)))


def _words(value: Any, name: str = "") -> Iterator[str]:
    match value:
        case dict():
            for key, inner in value.items():
                yield from _words(inner, key)
        case list():
            for inner in value:
                yield from _words(inner, name)
        case str() if name in SENSITIVE and len(value) > 5:
            yield value


def _everything_in(redis: Any) -> bytes:
    """Return every key and value except the token's."""
    read = {
        b"string": redis.get,
        b"hash": redis.hgetall,
        b"list": lambda key: redis.lrange(key, 0, -1),
        b"set": redis.smembers,
        b"zset": lambda key: redis.zrange(key, 0, -1),
        b"stream": redis.xrange,
        b"none": lambda _key: None,  # it has just expired
    }
    keys = [key for key in redis.scan_iter(count=1000) if key != b"ck:token"]
    return b"\n".join(repr((key, read[redis.type(key)](key))).encode() for key in keys)


@pytest.fixture(scope="module")
def canaries(traces: Traces) -> set[str]:
    """Return every word that must appear nowhere."""
    secrets = json.loads((traces.stack.data / "secrets.json").read_text())
    return _sensitive_words() | {
        *(secrets["push_key"], secrets["admin_password"], Credentials().password, Credentials().access_token),
        *(TOKEN, SECRET, "canary-wrong-key"),
    }


@pytest.mark.timeout(240)
def test_canaries_are_nowhere(traces: Traces, canaries: set[str]) -> None:
    """Promise 6: no sensitive word is in Redis and its files, logs, arguments, pages, metrics or webhooks."""
    assert len(canaries) > 100, "the sandbox has too few canaries"
    found = [(place, word[:4]) for place, text in traces.texts.items() for word in canaries if word.encode() in text]
    assert found == [], f"{len(found)} found"


def test_canaries_are_looked_for_where_things_are(traces: Traces) -> None:
    """The search is effective: it finds the institution's key in every kind of place."""
    call_id = KEY.encode()
    for place in ("Redis", "outcomes", "log of web", "log of worker-1"):
        assert call_id in traces.texts[place], place
    assert any(call_id in text for place, text in traces.texts.items() if place.startswith("file "))


def test_canaries_tokens_are_in_the_tokens_own_key_only(traces: Traces) -> None:
    """The service's token is in no other key, no log and on no page."""
    token = re.search(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", traces.token)
    assert token is not None
    places = [p for p, text in traces.texts.items() if token[0] in text and not p.startswith("file ")]
    assert places == []


def test_every_address_answers_somebody(traces: Traces) -> None:
    """Every address of the application gives at least one requester a status below 500."""
    assert {"/metrics", "/board", "/rq/", "/desk/calls", "/push"} <= set(traces.asked)
    assert {path: status for path, status in traces.asked.items() if status >= 500} == {}

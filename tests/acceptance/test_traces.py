"""What the main job leaves behind: jobs that an operator can read, and not one sensitive word."""

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec
from rq import Queue
from rq.job import Job
from rq.registry import FinishedJobRegistry
from rq.serializers import JSONSerializer

from sandbox import population
from sandbox.access import Credentials
from sandbox.state import PushSettings
from sandbox.world import World
from tests.acceptance.stack import Stack, end, until


def test_traces_are_readable_in_the_rq_dashboard(running: Stack) -> None:
    """The jobs of a call's life are finished jobs of a stock RQ queue, and say at /rq what they did."""
    call = running.call(end(3))
    running.settled(call)
    queue = Queue("calls", connection=running.redis, serializer=JSONSerializer())

    def told() -> list[str]:
        ids = FinishedJobRegistry(queue=queue).get_job_ids()
        jobs = Job.fetch_many(ids, connection=running.redis, serializer=JSONSerializer())
        descriptions = [job.description or "" for job in jobs if job]
        return [text for text in descriptions if re.search(r"\d+ calls?, ", text)]

    descriptions = until(told, 40, "a job that tells of calls")
    assert all(description.startswith("advance: ") for description in descriptions)
    user, _, password = running.demo.admin.partition(":")
    page = running.http.get(f"{running.demo.web_url}/rq/", auth=(user, password), follow_redirects=True)
    assert page.status_code == 200
    assert running.http.get(f"{running.demo.web_url}/rq/").status_code == 401


def test_traces_hold_no_sensitive_word(running: Stack) -> None:
    """What the service says of people, and every credential, is nowhere in Redis (the token's own key aside) or in a log."""
    call = running.call({"kind": "mfa_validated", "after_s": 3}, end(8))
    running.settled(call)
    canaries = _sensitive_words()
    assert len(canaries) > 100, "the stand-in's world holds canaries"
    secrets = json.loads((running.data / "secrets.json").read_text())
    canaries |= {secrets["push_key"], secrets["admin_password"], Credentials().password, Credentials().access_token}
    ours = (member for member in running.demo.members if member.name != "sandbox")
    logs = "".join(member.log.read_text(errors="replace") for member in ours)
    stored = _everything_in(running.redis)
    assert call["voice_id"].encode() in stored, "the search finds what is there"
    found = [word for word in canaries if word in logs or word.encode() in stored]
    assert not found, f"{len(found)} sensitive words leaked"


SENSITIVE = {
    *("fullSsn", "supportPassword", "dateOfBirth", "licenseNumber", "number"),
    *("edgeAccessKey", "coreTypeBAdminPassword", "coreTypeAPassword", "authenticationValue"),
}


def _sensitive_words() -> set[str]:
    """Return what the stand-in invents of people and secrets: the same in every process."""
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
    parts: list[bytes] = []
    for key in redis.scan_iter(count=1000):
        if key == b"ck:token":
            continue
        parts += [key, redis.dump(key) or b"", *_values(redis, key)]
    return b"\n".join(parts)


def _values(redis: Any, key: bytes) -> list[bytes]:
    match redis.type(key):
        case b"string":
            return [redis.get(key)]
        case b"hash":
            return [part for pair in redis.hgetall(key).items() for part in pair]
        case b"list":
            return list(redis.lrange(key, 0, -1))
        case b"set":
            return list(redis.smembers(key))
        case b"zset":
            return list(redis.zrange(key, 0, -1))
        case _:
            return []

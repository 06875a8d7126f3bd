"""The demonstration's archive: a call is found by its digits after its record in Redis has expired."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from redis import Redis

from callkeeper.calls.record_storage import parse_call
from callkeeper.calls.store.keys import Keys
from callkeeper_sandbox.demo.demonstration import Demo, demonstration
from tests.waiting import until

PATIENCE_S = 90.0


def run(demo: Demo, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a callkeeper command with the demonstration's settings."""
    command = [sys.executable, "-m", "callkeeper", *arguments]
    return subprocess.run(command, env={**os.environ, **demo.environ}, capture_output=True, text=True, check=False)  # noqa: S603


def archived(redis: Any) -> bytes | None:
    """Return an archived call that has a phone number."""
    keys = Keys()
    for member in redis.zrange(keys.settled, 0, -1):
        item = redis.hgetall(keys.item(member.decode()))
        if item.get(b"archived") and parse_call(item[b"rec"]).names.phone_number:
            return bytes(member)
    return None


def test_call_of_the_demo_is_found_after_it_expired_in_redis(tmp_path: Path) -> None:
    """`make run`: an expired call is found by its last digits and explained from the archive, whose chain is intact."""
    with demonstration(tmp_path, workers=1, seed=1, archive=True) as demo, Redis.from_url(demo.redis_url) as client:
        redis: Any = client
        until(lambda: archived(redis) is not None, PATIENCE_S, "a call to be archived")
        member, keys = archived(redis), Keys()
        assert member is not None
        call = parse_call(redis.hget(keys.item(member.decode()), "rec"))
        assert redis.ttl(keys.item(member.decode())) > 0
        redis.delete(keys.item(member.decode()), keys.trail(member.decode()))  # as its expiry does
        redis.zrem(keys.settled, member)
        digits = (call.names.phone_number or "")[-6:]
        found = run(demo, "calls", "list", digits)
        assert call.voice_id in found.stdout, found.stderr
        told = run(demo, "calls", "explain", "--all", call.voice_id)
        assert "settled" in told.stdout, told.stderr
        verified = run(demo, "archive", "verify")
        assert verified.returncode == 0, verified.stdout + verified.stderr

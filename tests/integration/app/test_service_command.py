"""``callkeeper service``: where requests are stopped, and how a person tries again at once."""

import json
import time
from datetime import UTC, datetime

import msgspec
from click.testing import CliRunner, Result
from redis import Redis

from callkeeper.app.cli import main
from callkeeper.calls.pause import Pause, PauseScope
from callkeeper.calls.store.breakers import breakers_of
from callkeeper.calls.store.keys import Keys

NOW = datetime(2027, 1, 4, 9, tzinfo=UTC)


def command(redis_url: str, *arguments: str) -> Result:
    """Run a subcommand of ``callkeeper service``."""
    return CliRunner(env={"REDIS_URL": redis_url}).invoke(main, ["service", *arguments])


def test_service_says_that_no_requests_are_stopped(redis_url: str) -> None:
    """In the usual case it is one line, and a retry harms nothing."""
    assert command(redis_url).output == "All requests may go: none are stopped or limited.\n"
    assert command(redis_url, "retry").exit_code == 0


def test_service_shows_breakers_and_retry_has_them_tried_now(redis_url: str) -> None:
    """A line for the service and one for each institution; after `retry` each may be tried at once."""
    now_ms = int(time.time() * 1000)
    with Redis.from_url(redis_url) as redis:
        redis.hset(Keys().breakers, "", f"7 {now_ms} {now_ms + 60_000} failure")
        redis.hset(Keys().breakers, "cu-1", f"1 {now_ms} {now_ms + 60_000} pause")
        shown = command(redis_url).output.splitlines()
        assert shown[0].startswith("all institutions, everything: closed; away since ")
        assert shown[1].startswith("institution cu-1, calls: closed; paused since ")
        assert '"institution":"cu-1"' in command(redis_url, "--json").output.replace(" ", "")
        assert command(redis_url, "retry").output.count("Tried now: ") == 2
        stored: dict[bytes, bytes] = redis.hgetall(Keys().breakers)
    assert all(breaker.tried_at.timestamp() <= time.time() + 1 for breaker in breakers_of(stored).values())


def test_service_shows_every_scope_that_is_not_open(redis_url: str) -> None:
    """Whatever holds a request up is one row: breaker, turn to check, 401, rate, new Redis, and a person's pause."""
    now_ms = int(time.time() * 1000)
    keys = Keys()
    with Redis.from_url(redis_url) as redis:
        redis.hset(keys.endpoints, "queue cu-1", f"5 {now_ms} {now_ms + 3000} failure")
        redis.hset(keys.endpoints, "check cu-2", f"3 {now_ms} {now_ms + 3000} failure")
        redis.hset(keys.epoch, mapping={"id": "a/b", "since": now_ms})
        redis.hset(keys.refused, "details cu-3", f"0 0 0 {now_ms}")
        redis.hset(keys.budget, "", f"12.5 3.0 {now_ms} " + "0 " * 14)
        redis.hset(
            keys.pause,
            "cu-1",
            msgspec.json.encode(Pause(scope=PauseScope.ALL, operator="jane", because="drill", at=NOW)),
        )
        rows = json.loads(command(redis_url, "--json").output)
    found = {(row["institution"], row["requests"], row["state"]) for row in rows}
    assert found == {
        (None, "everything", "limited"),
        (None, "effects", "closed"),
        ("cu-1", "queue", "closed"),
        ("cu-1", "automatic", "stopped by a person"),
        ("cu-2", "check", "limited"),
        ("cu-3", "details", "closed"),
    }
    assert [row["institution"] for row in rows] == sorted(
        (row["institution"] for row in rows), key=lambda key: key or ""
    )
    assert next(row for row in rows if row["per_second"] == 12.5)["because"].startswith("using ")

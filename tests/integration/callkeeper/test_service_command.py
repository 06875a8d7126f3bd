"""``callkeeper service``: where requests are stopped, and how a person tries again at once."""

import time

from click.testing import CliRunner, Result
from redis import Redis

from callkeeper.cli import main
from calls.store.breakers import breakers_of
from calls.store.keys import Keys


def command(redis_url: str, *arguments: str) -> Result:
    """Run a subcommand of ``callkeeper service``."""
    return CliRunner(env={"REDIS_URL": redis_url}).invoke(main, ["service", *arguments])


def test_service_says_that_no_requests_are_stopped(redis_url: str) -> None:
    """In the usual case it is one line, and a retry harms nothing."""
    assert command(redis_url).output == "No requests are stopped.\n"
    assert command(redis_url, "retry").exit_code == 0


def test_service_shows_breakers_and_retry_has_them_tried_now(redis_url: str) -> None:
    """A line for the service and one for each institution; after `retry` each may be tried at once."""
    now_ms = int(time.time() * 1000)
    with Redis.from_url(redis_url) as redis:
        redis.hset(Keys().breakers, "", f"7 {now_ms} {now_ms + 60_000} failure")
        redis.hset(Keys().breakers, "cu-1", f"1 {now_ms} {now_ms + 60_000} pause")
        shown = command(redis_url).output.splitlines()
        assert shown[0].startswith("the service: away since ")
        assert shown[1].startswith("institution cu-1: paused since ")
        assert '"institution":"cu-1"' in command(redis_url, "--json").output.replace(" ", "")
        assert command(redis_url, "retry").output.count("Tried now: ") == 2
        stored: dict[bytes, bytes] = redis.hgetall(Keys().breakers)
    assert all(breaker.tried_at.timestamp() <= time.time() + 1 for breaker in breakers_of(stored).values())

"""A Redis user that lacks the right to a single command, or to our keys, is told so, with the remedy."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from callkeeper.app.doctor.finding import Severity
from callkeeper.app.doctor.redis_server import store_findings
from callkeeper.app.redis_location import RedisLocation, parse_location
from callkeeper.app.redis_rights import COMMANDS, missing_rights, warn_of_missing_rights
from callkeeper.calls.store.keys import Keys

ROOT = Path(__file__).parents[3]
USERS = (ROOT / "deploy" / "redis" / "users.acl.example").read_text(encoding="utf-8")
RIGHTS = {words[1]: words[4:] for words in map(str.split, USERS.splitlines()) if words[2] == "on"}
LACKING = {
    "single commands": (["-blpop", "-role"], ["+blpop", "+role"]),
    "a command of scripts only": (["-zrangebyscore"], ["+zrangebyscore"]),
    "transactions": (["-multi"], ["+multi"]),
    "our keys": (["resetkeys", "~rq:*"], ["~ck:*"]),
    "RQ's keys": (["resetkeys", "~ck:*"], ["~rq:*"]),
    "no right": (["-client"], []),
}


@pytest.fixture
def admin(redis_url: str) -> Iterator[Any]:
    """Return a client that may make users; the user is gone afterwards."""
    with Redis.from_url(redis_url) as client:
        yield client
        client.acl_deluser("limited")


def limited(admin: Any, redis_url: str, process: str, *rules: str) -> RedisLocation:
    """Return where a user works that has the rights of a process, changed by these rules."""
    admin.execute_command("ACL", "SETUSER", "limited", "reset", "on", ">pass-1", *RIGHTS[process], *rules)
    return parse_location(redis_url.replace("redis://", "redis://limited:pass-1@"))


@pytest.mark.parametrize(("rules", "missing"), LACKING.values(), ids=LACKING)
async def test_missing_right_is_named(admin: Any, redis_url: str, rules: list[str], missing: list[str]) -> None:
    """By doctor and start-up, as the rule that has to be added. Nothing is run to find out."""
    place = limited(admin, redis_url, "worker", *rules)
    before = admin.dbsize()
    assert missing_rights(place, Keys()) == missing
    assert admin.dbsize() == before
    capture = structlog.testing.LogCapture()
    log: Any = structlog.wrap_logger(None, processors=[capture])
    warn_of_missing_rights(place, Keys(), log)
    assert [entry["rights"] for entry in capture.entries] == ([missing] if missing else [])
    if missing:
        async with AsyncRedis.from_url(place.url.reveal()) as redis:
            [finding] = await store_findings(redis, place)
        assert finding.severity is Severity.FAULT
        assert finding.detail.endswith(f"our user lacks rights: {' '.join(missing)}")


@pytest.mark.parametrize("process", RIGHTS)
def test_users_of_the_example_lack_nothing(admin: Any, redis_url: str, process: str) -> None:
    """Each process has what it needs with the file that we hand out, although web may not read the token."""
    assert missing_rights(limited(admin, redis_url, process), Keys()) == []


def test_every_command_of_the_scripts_is_tried() -> None:
    """A new command in a script must be in the list."""
    scripts = "".join(path.read_text() for path in (ROOT / "callkeeper/calls/lua").rglob("*.lua"))
    used = {name.lower() for name in re.findall(r"redis\.p?call\('([A-Za-z]+)'", scripts)}
    assert used - COMMANDS.keys() == set()


def test_redis_that_does_not_answer_is_no_matter_of_rights() -> None:
    """Others say that it is away."""
    assert missing_rights(parse_location("redis://127.0.0.1:1/0"), Keys()) == []

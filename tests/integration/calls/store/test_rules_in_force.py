"""The rules in force, and those before: written by workers that start, shown on the board and by a command."""

import json
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from click.testing import CliRunner
from redis import Redis as BlockingRedis

from callkeeper.app.cli import main
from callkeeper.calls.rules import load_rules
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.rules_in_force import OwnRules, RulesInForce, put_in_force
from callkeeper.calls.stored_value import readable


def test_rules_are_in_force_since_a_worker_first_began_with_them(blocking_redis: BlockingRedis) -> None:
    """A restart with the same rules changes nothing; other rules, or a rollback, begin anew."""
    keys = Keys()
    first = put_in_force(blocking_redis, keys, "aaa", "rules.toml")
    assert put_in_force(blocking_redis, keys, "aaa", "rules.toml") == first
    second = put_in_force(blocking_redis, keys, "bbb", "rules.toml")
    assert second.since >= first.since
    assert put_in_force(blocking_redis, keys, "aaa", "rules.toml").since >= second.since
    assert readable(b"{}", RulesInForce) is None


def test_workers_that_start_at_once_write_one_line(blocking_redis: BlockingRedis, redis_url: str) -> None:
    """Workers of a deployment start within the same second, and each writes what it starts with."""
    keys, workers = Keys(), 8
    together = Barrier(workers)

    def start(_: int) -> RulesInForce:
        with BlockingRedis.from_url(redis_url) as redis:
            redis.ping()
            together.wait(10)
            return put_in_force(redis, keys, "aaa", "rules.toml")

    with ThreadPoolExecutor(workers) as pool:
        found = set(pool.map(start, range(workers)))
    assert (len(found), blocking_redis.llen(keys.rules_history)) == (1, 1)


def test_worker_that_starts_while_redis_refuses_writes_records_its_rules_later(blocking_redis: BlockingRedis) -> None:
    """Otherwise the rules of before seem to be in force until the next deployment, and the text is nowhere."""
    keys = Keys()
    put_in_force(blocking_redis, keys, "aaa", "rules.toml", b"before")
    own = OwnRules(blocking_redis, keys, "bbb", "rules.toml", b"after", host="h", release="1")
    blocking_redis.config_set("maxmemory", "1")
    try:
        own.put_in_force()
    finally:
        blocking_redis.config_set("maxmemory", "0")
    assert in_force(blocking_redis) == "aaa"
    own.put_in_force()
    assert (in_force(blocking_redis), blocking_redis.hget(keys.rules_texts, "bbb")) == ("bbb", b"after")
    blocking_redis.flushall()
    own.put_in_force()
    assert (in_force(blocking_redis), blocking_redis.hget(keys.rules_texts, "bbb")) == ("bbb", b"after")
    put_in_force(blocking_redis, keys, "ccc", "rules.toml", b"of the next deployment")
    own.put_in_force()
    assert in_force(blocking_redis) == "ccc"


def in_force(redis: BlockingRedis) -> str:
    """Return the digest of the rules in force."""
    stored = redis.get(Keys().rules)
    assert isinstance(stored, bytes)
    known = readable(stored, RulesInForce)
    assert known is not None
    return known.digest


def test_command_says_which_rules_decided_when(redis_url: str, blocking_redis: BlockingRedis) -> None:
    """Every text that was in force is found by the day: what a worker started with, also after a rollback."""
    keys = Keys()
    texts = {name: load_rules(name) for name in ("default", "demo")}
    for name in ("default", "demo", "default"):
        book = texts[name]
        put_in_force(blocking_redis, keys, book.digest, name, book.text)
    stored = [json.loads(line) for line in blocking_redis.lrange(keys.rules_history, 0, -1)]
    days = ("2027-03-05T08:00:00Z", "2027-03-03T12:00:00Z", "2027-03-01T08:00:00Z")
    blocking_redis.delete(keys.rules_history)
    for line, day in zip(reversed(stored), reversed(days), strict=True):
        blocking_redis.lpush(keys.rules_history, json.dumps({**line, "since": day}))

    def asked(*arguments: str) -> list[str]:
        told = CliRunner(env={"REDIS_URL": redis_url}).invoke(main, ["rules", "history", *arguments])
        return [json.loads(line)["name"] for line in told.output.splitlines()] if told.exit_code == 0 else []

    assert asked("--json") == ["default", "demo", "default"]
    assert asked("--json", "--at", "2027-03-02") == ["default"]
    assert asked("--json", "--at", "2027-03-03") == ["demo", "default"], "both, because it was changed at noon"
    assert asked("--json", "--at", "2027-03-03T12:00") == ["demo"]
    assert asked("--json", "--at", "2027-02-01") == []
    shown = CliRunner(env={"REDIS_URL": redis_url}).invoke(main, ["rules", "history", texts["default"].digest])
    assert texts["default"].text.decode().strip() in shown.output

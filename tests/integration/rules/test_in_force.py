"""The digest in force, and since when: written by workers that start, shown on the board."""

from redis import Redis as BlockingRedis

from calls.store.keys import Keys
from calls.store.rules_in_force import parse_rules_in_force, put_in_force


def test_rules_are_in_force_since_a_worker_first_began_with_them(blocking_redis: BlockingRedis) -> None:
    """A restart with the same rules changes nothing; other rules, or a rollback, begin anew."""
    keys = Keys()
    first = put_in_force(blocking_redis, keys, "aaa", "rules.toml")
    assert put_in_force(blocking_redis, keys, "aaa", "rules.toml") == first
    second = put_in_force(blocking_redis, keys, "bbb", "rules.toml")
    assert second.since >= first.since
    assert put_in_force(blocking_redis, keys, "aaa", "rules.toml").since >= second.since
    assert parse_rules_in_force(b"{}") is None

"""A Redis behind a sentinel that is shared with another program: web and workers use only their own keys."""

import contextlib
from pathlib import Path

from click.testing import CliRunner
from redis import Redis

from callkeeper.app.cli import main
from callkeeper.calls.store.keys import Keys
from callkeeper_sandbox.demo.demonstration import demonstration
from callkeeper_sandbox.service import population
from tests.faults.sentinel import TENANT, watched_redis
from tests.harness.processes import KEY, Sides


def test_calls_are_settled_under_a_prefix_behind_a_sentinel(tmp_path: Path) -> None:
    """A pushed call is settled; every key in Redis has our prefix or is RQ's, and RQ's queue has our name.

    The Redis user has the rights of `worker` in deploy/redis/users.acl.example and no others, and the doctor finds no
    fault with them.
    """
    keys = Keys("bank-a")
    with watched_redis(tmp_path / "watched") as watched:
        environ = {"REDIS_URL": watched.url_of(TENANT), "CALLKEEPER_REDIS_PREFIX": keys.setting}
        with (
            demonstration(
                tmp_path / "data", workers=1, seed=1, scenario="none", web_environ=environ, worker_environ=environ
            ) as demo,
            contextlib.closing(Sides(watched.url, demo.service_url, keys=keys)) as sides,
        ):
            phone = population.phone(KEY, population.SHARED)
            body = {"institution_key": KEY, "phone_number": phone, "script": [{"kind": "end", "after_s": 2}]}
            call = sides.control("POST", "/calls", body)
            sides.settled(call)
            names = {name.decode() for name in sides.redis.scan_iter(count=1000)}
            foreign = {name for name in names if not name.startswith((f"{keys.setting}:", "rq:"))}
            assert foreign == set()
            assert f"rq:workers:{keys.queue_name}" in names
            assert f"rq:workers:{Keys().queue_name}" not in names
            with Redis.from_url(demo.redis_url) as own:
                assert own.keys() == []
            examined = CliRunner().invoke(main, ["doctor"], env=dict(demo.environ))
            assert "fault" not in examined.stdout, examined.stdout

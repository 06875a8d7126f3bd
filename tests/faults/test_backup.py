"""A backup of Redis that is an hour old is restored, so that an hour of writes is lost (C15, E4).

A real server loads a snapshot; callkeeper runs in virtual time. Every call is live before and after.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from callkeeper.app.connections import worker_redis
from callkeeper.app.redis_location import parse_location
from callkeeper.calls.causes import IncidentKind
from callkeeper.calls.claimed_item import LEASE
from callkeeper.calls.incident_detection import incidents_of
from callkeeper.calls.metrics.signals import SignalReader
from callkeeper.calls.notes import CheckWish, Distrusted, Verified
from callkeeper.calls.record import CHECK_LIMIT
from callkeeper.calls.store.keys import KEYS
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.faults.redis_server import RedisServer
from tests.harness.virtual_time import EAGER, Rig
from tests.sandbox_fixtures import KEY, Asgi

HOUR_S = 3600
ENROLLED = ("before", "word in the backup", "word in the hour", "rule in the hour", "new")
"""Calls that are enrolled, by when that was asked for."""
OTHERS = ("rejected in the hour", "rejected by a word in the backup", "undecided", "asked about")


class Site:
    """A server with a snapshot, and a callkeeper whose processes can be replaced."""

    def __init__(self, server: RedisServer, data: Path) -> None:
        self.server = server
        self.stage = Asgi()
        self.calls: dict[str, Call] = {}
        self._snapshot = data / "dump.rdb"
        self._rigs: list[Rig] = []
        self.rig = self.new_rig()

    def new_rig(self) -> Rig:
        """Start new processes, without any memory."""
        rig = Rig(self.stage, worker_redis(parse_location(self.server.url())), EAGER, hold_s=LEASE.seconds)
        self._rigs.append(rig)
        return rig

    async def aclose(self) -> None:
        """Close all connections."""
        for rig in self._rigs:
            await rig.redis.aclose()
            await rig.service.aclose()

    def call(self, name: str, *script: Happening) -> None:
        """Begin a call of a member who is in no other call. It does not end."""
        n = len(self.calls)
        self.stage.world.add_member(KEY, f"m-{n}", [f"555020000{n}"], first_name="Bo", last_name=f"Number {n}")
        self.calls[name] = self.stage.call(
            *script, phone_number=f"555020000{n}", voice_id=f"v-{n}", alternate_id=f"a-{n}"
        )

    async def take_backup(self) -> bytes:
        """Return a snapshot of everything."""
        await self.rig.redis.save()
        return self._snapshot.read_bytes()

    async def restore(self, backup: bytes) -> None:
        """Start the server from a snapshot."""
        self.server.kill()
        self._snapshot.write_bytes(backup)
        self.server.start(appendonly="no")

    async def is_told_of_a_replaced_redis(self) -> bool:
        """Tell whether the board shows that Redis was replaced."""
        found = incidents_of(await SignalReader(self.rig.redis, KEYS).read(now=self.stage.clock.now))
        return IncidentKind.REDIS_REPLACED in {incident.kind for incident in found}

    def person_of(self, name: str) -> str:
        """Return the member who is in a call."""
        return f"m-{list(self.calls).index(name)}"


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """Run a server that keeps its data in snapshots alone."""
    server = RedisServer(tmp_path)
    try:
        server.start(appendonly="no")
        site = Site(server, tmp_path)
        yield site
        await site.aclose()
    finally:
        server.stop()


async def say_verified(site: Site, name: str) -> None:
    """State that a person verified the caller."""
    said = Verified(
        person_id=site.person_of(name), validation_type="Other", operator="ann", said_at=site.stage.clock.now
    )
    assert await site.rig.note(site.calls[name], said)


async def say_distrusted(site: Site, name: str) -> None:
    """State that the caller cannot be trusted."""
    assert await site.rig.note(site.calls[name], Distrusted(operator="ann", said_at=site.stage.clock.now))


async def live_an_hour(site: Site) -> None:
    """Do what the backup will not contain: an enroll, a reject, all checks, a new call."""
    await say_verified(site, "word in the hour")
    await say_distrusted(site, "rejected in the hour")
    for _ in range(2):
        await site.rig.note(site.calls["asked about"], CheckWish(operator="ann", said_at=site.stage.clock.now))
        await site.rig.run(20)
    await site.rig.run(HOUR_S - 140)
    site.call("new")
    await site.rig.run(10)
    await say_verified(site, "new")
    await site.rig.run(90)


@pytest.mark.parametrize("processes", [pytest.param("go on", marks=pytest.mark.night), "are new"])
async def test_backup_of_an_hour_ago_repeats_no_effect_and_exceeds_no_budget(site: Site, processes: str) -> None:
    """No enroll or reject is sent twice, no call is checked a 21st time, every call is found again."""
    await site.rig.run(15)
    for name in (*ENROLLED[:-1], *OTHERS):
        site.call(name, *([Happening(Kind.MFA_VALIDATED, 600)] if name == "rule in the hour" else []))
    await site.rig.run(10)
    await say_verified(site, "before")
    await site.rig.run(20)
    await say_verified(site, "word in the backup")
    await say_distrusted(site, "rejected by a word in the backup")
    backup = await site.take_backup()
    await live_an_hour(site)
    before = {name: site.rig.ledger(call) for name, call in site.calls.items()}
    assert [before[name].get("enroll") for name in ENROLLED] == [1] * len(ENROLLED)
    assert [before[name].get("reject_voice") for name in OTHERS[:2]] == [1, 1]

    await site.restore(backup)
    if processes == "are new":
        site.rig = site.new_rig()
    await site.rig.run(60)
    for name in ("undecided", "asked about"):
        await site.rig.note(site.calls[name], CheckWish(operator="ann", said_at=site.stage.clock.now))
    for name in ("word in the hour", "new"):
        await say_verified(site, name)
    await say_distrusted(site, "rejected in the hour")
    await site.rig.run(600)

    for name, call in site.calls.items():
        now = site.rig.ledger(call)
        assert now.get("enroll", 0) == before[name].get("enroll", 0), name
        assert now.get("reject_voice", 0) == before[name].get("reject_voice", 0), name
        assert now.get("assign", 0) == 1, name
        assert now.get("check", 0) <= CHECK_LIMIT, name
        record = await site.rig.record(call)
        assert not record.is_settled, name
        assert record.seen.enrolled == (name in ENROLLED), name
        assert record.seen.person_id == site.person_of(name), name
        assert now.get("check", 0) <= record.plan.checks_used <= CHECK_LIMIT, name


async def test_processes_that_go_on_tell_that_redis_is_older(site: Site) -> None:
    """A crash that loads the last dump is an incident each time, a restart that loses nothing is none (C15)."""
    await site.rig.run(20)
    dump = await site.take_backup()
    await site.rig.run(100)
    await site.restore(await site.take_backup())
    await site.rig.run(100)
    assert not await site.is_told_of_a_replaced_redis()
    for _ in range(2):
        await site.restore(dump)
        assert not await site.is_told_of_a_replaced_redis()
        await site.rig.run(10)
        assert await site.is_told_of_a_replaced_redis()

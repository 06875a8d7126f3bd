"""A site: real processes on one Redis server and one sandbox; tests start, crash, freeze and replace them.

Every institution of a site is a stage. The workers of a stage act for this institution only and keep its calls in their
own Redis database, so that many tests can run at the same time and share only the two servers.
"""

import asyncio
import queue
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import httpx
from redis.asyncio import Redis as AsyncRedis

from callkeeper.calls.item_names import CallId
from callkeeper.calls.notes import Verified
from callkeeper.calls.store.claims import Store
from callkeeper.calls.store.keys import Keys
from callkeeper_sandbox.demo.fleet import Fleet, ManagedProcess
from tests.faults.redis_server import DATABASES, RedisServer, redis_server
from tests.harness.fork_server import ForkingFleet
from tests.harness.processes import (
    PATIENCE_S,
    PUSH_KEY,
    Sides,
    checking_at,
    start_sandbox,
    start_web,
    start_worker,
    thaw,
    web_url,
)

CHECK_AT = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 17, 20, 24, 28, 33, 39, 46)
"""The automatic checks of a stage's calls, in seconds after the assign: early, so that tests need not wait."""


@dataclass(slots=True)
class Site:
    """The two servers, the processes, and the Redis databases that are free."""

    redis: RedisServer
    fleet: Fleet
    service_url: str
    _free: "queue.Queue[int]" = field(default_factory=queue.Queue)
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def number(self) -> int:
        """Return a number that is unique within this site."""
        with self._lock:
            return next(self._numbers)

    @contextmanager
    def stage(self) -> Iterator["Stage"]:
        """Provide an institution with one member and an empty database until the block ends."""
        db = self._free.get()
        stage = Stage(self, f"stage-{self.number()}", db)
        try:
            yield stage
        finally:
            stage.close()
            self._free.put(db)


class Stage(Sides):
    """One institution: its calls, its workers, its database."""

    poll_every_s = 0.2  # many stages play at the same time

    def __init__(self, site: Site, key: str, db: int, *, redis_url: str | None = None) -> None:
        super().__init__(redis_url or site.redis.url(db), site.service_url)
        self.http.timeout = PATIENCE_S
        self.site = site
        self.key = key
        self.phone = f"5559{int(key.rpartition('-')[2]):06}"
        self.members: list[ManagedProcess] = []
        self._settle_in()
        self.control("PUT", f"/institutions/{key}", {"name": key})
        body = {"institution_key": key, "person_id": f"{key}-p", "phones": [self.phone]}
        self.control("POST", "/members", body)

    def _settle_in(self) -> None:
        """Make Redis look as if it had run for a while, because workers delay effects after a restart of Redis."""
        info = self.redis.info()
        self.redis.hset(Keys().epoch, mapping={"id": f"{info['run_id']}/{info['master_replid']}", "since": 0})

    def close(self) -> None:
        """Kill the processes and delete the data."""
        for member in self.members:
            thaw(member)
            member.kill()
        self.redis.flushdb()
        super().close()

    def begin(self, *script: dict[str, object], **more: object) -> dict[str, Any]:
        """Start a call of the member; return the sandbox's account of it."""
        body = {"institution_key": self.key, "phone_number": self.phone, "script": script, **more}
        account: dict[str, Any] = self.control("POST", "/calls", body)
        return account

    def verify(self, call: dict[str, Any]) -> None:
        """Let a person verify the caller: the rules enroll at once then."""

        async def leave() -> None:
            said = Verified(
                person_id=f"{self.key}-p", validation_type="Other", operator="ann", said_at=datetime.now(UTC)
            )
            async with AsyncRedis.from_url(self.redis_url) as redis:
                assert (await Store(redis).note(CallId(self.key, call["voice_id"]), said))[0]

        asyncio.run(leave())

    def trouble(self, target: str, action: str = "pass", **more: object) -> None:
        """Add a fault of the sandbox for this institution."""
        self.fault(target, action, institution_key=self.key, **more)

    def worker(
        self, *, crash: str = "", redis_url: str | None = None, service_url: str | None = None
    ) -> ManagedProcess:
        """Start a worker; ``crash`` names a point and what happens to the worker there."""
        member = start_worker(
            self.site.fleet,
            redis_url or self.redis_url,
            service_url or self.service_url,
            name=f"worker-{self.site.number()}",
            command=crash or "worker",
            module="tests.faults.crashpoints" if crash else "callkeeper",
            environ={**checking_at(self.site.fleet.log_dir, *CHECK_AT), "CALLKEEPER_INSTITUTIONS": self.key},
        )
        self.members.append(member)
        return member

    def web(self, *, redis_url: str | None = None, port: int = 0) -> "Door":
        """Start a web process, and wait until it listens."""
        name = f"web-{self.site.number()}"
        member = start_web(self.site.fleet, redis_url or self.redis_url, name=name, port=port)
        self.members.append(member)
        return Door(member, web_url(member), self.http)


@dataclass(frozen=True, slots=True)
class Door:
    """A web process and where it listens."""

    member: ManagedProcess
    url: str
    http: httpx.Client

    def push(self, call: dict[str, Any], kind: str = "CallStart") -> httpx.Response:
        """Send an event about a call, as the service does.

        Raises:
            httpx.HTTPError: The web process did not answer.
        """
        payload = {"Type": kind, "VoiceId": call["voice_id"], "InstitutionKey": call["institution_key"]}
        return self.http.post(f"{self.url}/push", json=payload, headers={"X-Push-Key": PUSH_KEY})


@contextmanager
def site(data: Path, *, forked: bool = True) -> Iterator[Site]:
    """Run a site until the block ends, then end every process that it started.

    ``forked``: start processes with the fork server; False where the time of a start is measured.
    """
    with ExitStack() as running_too:
        redis = running_too.enter_context(redis_server(data / "redis"))
        fleet = running_too.enter_context((ForkingFleet if forked else Fleet)(data / "logs"))
        running = Site(redis, fleet, start_sandbox(fleet))
        for db in range(DATABASES):
            running._free.put(db)
        yield running

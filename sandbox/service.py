"""The stand-in as a whole: the world with its scripted faults, its ledger, its pushes and its scenario."""

import asyncio
import datetime as dt
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import httpx

from sandbox.access import Credentials
from sandbox.faults import LISTING, Faults, Matter
from sandbox.ledger import Ledger
from sandbox.push import Pusher
from sandbox.scenario import Planned, Scenario
from sandbox.state import Call, Happening
from sandbox.world import World

Sleep = Callable[[float], Awaitable[None]]

PUSH_TIMEOUT_S = 5.0


def push_client() -> httpx.AsyncClient:
    """Return the client that delivers pushes: no redirects, no environment proxies."""
    return httpx.AsyncClient(timeout=PUSH_TIMEOUT_S, trust_env=False, limits=httpx.Limits(max_keepalive_connections=20))


class Sandbox:
    """Everything that the HTTP layer needs, and the two steps that move it on: `tick` and `deliver`."""

    def __init__(
        self,
        world: World,
        *,
        credentials: Credentials | None = None,
        faults: Faults | None = None,
        ledger: Ledger | None = None,
        scenario: Scenario | None = None,
        client: httpx.AsyncClient | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.world = world
        self.credentials = Credentials() if credentials is None else credentials
        self.faults = Faults() if faults is None else faults
        self.ledger = Ledger() if ledger is None else ledger
        self.scenario = scenario
        self.monotonic = monotonic
        self.sleep = sleep
        self.client = client or push_client()
        self.pusher = Pusher(world, self.faults, self.client)

    def begin(self, scenario: Scenario) -> None:
        """Let a scenario's calls come from now on."""
        self.scenario = scenario
        for fault in scenario.push_faults():
            self.faults.add(fault)

    def tick(self) -> None:
        """Let everything happen whose time has come, and plan the pushes that follow from it."""
        if self.scenario is not None:
            for planned in self.scenario.due(self.world.clock()):
                self._start_planned(planned)
        self.world.tick()
        self.pusher.pump()

    def _start_planned(self, planned: Planned) -> None:
        self.start_call(
            planned.institution_key,
            planned.phone_number,
            planned.script,
            voice_id=planned.voice_id,
            alternate_id=planned.alternate_id,
            started_at=planned.started_at,
            listed_after_s=planned.listed_after_s,
        )

    def start_call(
        self,
        institution_key: str,
        phone_number: str,
        script: Iterable[Happening] = (),
        *,
        voice_id: str | None = None,
        alternate_id: str | None = None,
        started_at: dt.datetime | None = None,
        listed_after_s: float = 0.0,
        persons: list[dict[str, Any]] | None = None,
    ) -> Call:
        """Start a call, now unless `started_at` says otherwise; a `listing` fault delays its place in the queue.

        Raises:
            ValueError: One of the ids is taken.
        """
        given = frozenset(id_ for id_ in (voice_id, alternate_id) if id_ is not None)
        fault = self.faults.take(Matter(LISTING, institution_key, given))
        return self.world.add_call(
            institution_key,
            phone_number,
            script,
            voice_id=voice_id,
            alternate_id=alternate_id,
            started_at=started_at,
            listed_after_s=listed_after_s + (fault.latency_s if fault else 0.0),
            persons=persons,
        )

    async def deliver(self) -> int:
        """Tick, send the pushes that are due, and return how many there were."""
        self.tick()
        return await self.pusher.deliver()

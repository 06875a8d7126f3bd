"""The sandbox: the world with scripted faults, ledger, pushes and scenario."""

import asyncio
import datetime as dt
import ssl
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import cache
from typing import Any

import httpx

from callkeeper_sandbox.service.access import Credentials
from callkeeper_sandbox.service.effects import happen
from callkeeper_sandbox.service.faults import LISTING, Faults, Matter
from callkeeper_sandbox.service.ledger import Ledger
from callkeeper_sandbox.service.push import Pusher
from callkeeper_sandbox.service.scenario import Scenario
from callkeeper_sandbox.service.state import Call, Happening
from callkeeper_sandbox.service.variants import aimed, choose
from callkeeper_sandbox.service.world import World

Sleep = Callable[[float], Awaitable[None]]

PUSH_TIMEOUT_S = 5.0


def push_client() -> httpx.AsyncClient:
    """Return the client that delivers pushes: no redirects, no environment proxies."""
    limits = httpx.Limits(max_keepalive_connections=20)
    return httpx.AsyncClient(verify=_tls(), timeout=PUSH_TIMEOUT_S, trust_env=False, limits=limits)


@cache
def _tls() -> ssl.SSLContext:
    """Read the certificates once, because that takes longer than to start a sandbox."""
    return httpx.create_ssl_context(trust_env=False)


class Sandbox:
    """Everything that the HTTP layer needs, and the two steps that advance it: `tick` and `deliver`."""

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
        self._admitted_at_s: deque[float] = deque()
        self.choose(world.state.variants)

    def choose(self, names: Sequence[str]) -> None:
        """Set the variants in force. Other open questions get the usual answer.

        Raises:
            VariantError: A name is unknown, or two answer the same question.
        """
        chosen, state = choose(names), self.world.state
        keys = [key for key, child in state.institutions.items() if child.owned]
        state.variants = list(dict.fromkeys(names))
        self.world.options = chosen.options
        self.faults.of_variants = aimed(chosen.faults, keys[-1] if keys else None)

    def admits(self) -> bool:
        """Tell whether a request is within the limit per second, and count it if so."""
        limit, now_s = self.world.options.requests_per_s, self.monotonic()
        while self._admitted_at_s and self._admitted_at_s[0] <= now_s - 1:
            self._admitted_at_s.popleft()
        if limit and len(self._admitted_at_s) >= limit:
            return False
        self._admitted_at_s.append(now_s)
        return True

    def begin(self, scenario: Scenario) -> None:
        self.scenario = scenario
        for fault in scenario.push_faults():
            self.faults.add(fault)

    def tick(self) -> None:
        """Apply all due changes, and plan the pushes that follow."""
        if self.scenario is not None:
            for planned in self.scenario.due(self.world.clock()):
                self.start_call(
                    planned.institution_key,
                    planned.phone_number,
                    planned.script,
                    voice_id=self.world.options.id_form(planned.voice_id),
                    alternate_id=self.world.options.id_form(planned.alternate_id),
                    started_at=planned.started_at,
                    listed_after_s=planned.listed_after_s,
                )
        for change in self.world.due():
            happen(self.world, self.world.state.calls[change.voice_id], change.happening, change.at)
        self.pusher.pump()

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

"""Probes where a breaker is open, so that it closes once the service answers again.

Every few seconds a probe is sent for each open breaker: a listing of one entry for a queue, stored details of a call for
calls, both for the account, or a login if there is no token. Each probe is a task of its own, so that a hanging one
delays no other. Its answer may be late. Its result is reported to the gate like any other, and a success closes the breaker.

A process that doubts its own way to the service (`workers.own_way`) leaves these probes to the others, and probes only its
own way, over new connections: by a listing and by a read, because one endpoint can fail for everybody.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from redis.exceptions import RedisError

from callkeeper.calls.item_names import CallId
from callkeeper.calls.store.breakers import QUEUES, WHOLE, EndpointKind, RequestResult, Scope
from callkeeper.calls.store.cancelling import end
from callkeeper.calls.store.request_budget import Permit
from callkeeper.service import ResellerError
from callkeeper.service.endpoints import DETAILS, INSTITUTIONS, QUEUE, Endpoint
from callkeeper.service.exchange import unkept
from workers.claimed_call import Tools, follow_member, follow_trace
from workers.managed_institutions import Institutions
from workers.own_way import was_answered

POLL_EVERY_S: Final = 0.25


@dataclass(slots=True)
class Probing:
    """Sends probes while a shift runs. ``on_probed`` is called when a probe may have closed a breaker."""

    tools: Tools
    institutions: Institutions
    on_probed: Callable[[], None] = lambda: None
    choose: Callable[[Sequence[Any]], Any] = random.choice
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Send probes until the block ends. No probe outlives it."""
        running = asyncio.ensure_future(self._run())
        try:
            yield
        finally:
            await end({running, *self._tasks})

    async def start_due(self) -> set[asyncio.Task[None]]:
        """Start the probes that are due now. Return all that are running."""
        way = self.tools.gate.way
        with suppress(RedisError):
            await self.tools.store.budget.poll()
            await way.look()
            if way.leaves_work:
                if way.take_probe():
                    self._start(self._try_way())
            elif self.tools.store.breakers.opened:
                for scope in await self.tools.store.breakers.take_probes():
                    self._start(self._try(scope))
        return set(self._tasks)

    def _start(self, trying: Coroutine[Any, Any, None]) -> None:
        probe = asyncio.ensure_future(trying)
        self._tasks.add(probe)
        probe.add_done_callback(self._tasks.discard)

    async def _run(self) -> None:
        while True:
            await self.start_due()
            await asyncio.sleep(POLL_EVERY_S)

    async def _try(self, scope: Scope) -> None:
        follow_trace()
        with suppress(ResellerError, RedisError):
            if scope == WHOLE:
                await self._try_account()
            elif scope == QUEUES:
                await self._list_another()
            elif self.institutions.are_known and scope.institution_key not in self.institutions.keys:
                # It is not ours any more: nobody would ever find that it answers.
                await self.tools.gate.publish(RequestResult.ANSWER, scope.institution_key, scope.kind)
            elif scope.kind is EndpointKind.QUEUE:
                await self._list_one(scope.institution_key)
            elif not await self._read_one(scope.institution_key):
                await self._list_one(scope.institution_key)
                # There is no call that could fail.
                await self.tools.gate.publish(RequestResult.ANSWER, scope.institution_key, scope.kind)
        self.on_probed()

    async def _try_way(self) -> None:
        """Send requests that any answer to shows that this process reaches the service. It leaves logins to others."""
        follow_trace()
        way = self.tools.gate.way
        since_s = way.doubted_since_s
        with suppress(RedisError):
            if await self.tools.service.has_token():
                await self._try_to_connect()
                way.probe_ended(since_s)
        self.on_probed()

    async def _try_to_connect(self) -> None:
        if not self.institutions.keys:
            await self._note_answer(INSTITUTIONS, self._list_institutions())
            return
        await asyncio.gather(
            self._note_answer(QUEUE, self._list_another(connects=True)),
            self._note_answer(DETAILS, self._read_one(connects=True)),
        )

    async def _list_institutions(self) -> bool:
        await self.tools.service.institutions(connects=True)
        return True

    async def _note_answer(self, endpoint: Endpoint, request: Awaitable[bool]) -> None:
        """Note whether a request over a connection of its own was answered, if it was made at all."""
        error: ResellerError | None = None
        try:
            is_made = await request
        except ResellerError as failed:
            is_made, error = True, failed
        if is_made and was_answered(endpoint, error):
            self.tools.gate.way.answered(connects=True)

    async def _try_account(self) -> None:
        """Log in if there is no token; else list an institution without an open breaker and read a call."""
        if not self.institutions.are_known:
            await self.institutions.refresh()
        elif not self.institutions.keys:
            await self.tools.service.institution_keys()
        else:
            await asyncio.gather(self._list_another(), self._read_one(), return_exceptions=True)

    async def _list_another(self, *, connects: bool = False) -> bool:
        """List any institution, one without an open breaker and whose queue was not refused last, if there is one.

        A shift has few probes, so each of them must be able to find the one queue that answers. ``connects``: over a
        connection of its own.
        """
        ours, barred_s = self.institutions.keys, self.tools.service.barred_s
        away = {breaker.institution_key for breaker in self.tools.store.breakers.opened}
        sound = [key for key in ours - away if barred_s(QUEUE, key) is None]
        await self._list_one(self.choose(sorted(sound or ours)), connects=connects)
        return True

    async def _read_one(self, institution_key: str | None = None, *, connects: bool = False) -> bool:
        """Read stored details of a call, of an institution if given. Return whether there was one."""
        ours = self.institutions.keys
        calls = [call for call in await self.tools.store.some_calls(institution_key) if call.institution_key in ours]
        if not calls:
            return False
        call_id = self.choose(await self._soundest(calls))
        follow_member(*call_id)
        requested_by = self.tools.requested_by(call_id.institution_key)
        await self.tools.gate.probe(call_id.institution_key, Permit.READ)
        keep = None if connects else unkept
        await self.tools.service.details(*call_id, check=False, requested_by=requested_by, connects=connects, keep=keep)
        return True

    async def _soundest(self, calls: Sequence[CallId]) -> Sequence[CallId]:
        """Return those whose own reads have failed least: a few that always fail must not keep a breaker open."""
        records = await asyncio.gather(*map(self.tools.store.record, calls))
        failed = [0 if record is None else record.plan.reads_failed for record in records]
        return [call_id for call_id, failures in zip(calls, failed, strict=True) if failures == min(failed)]

    async def _list_one(self, institution_key: str, *, connects: bool = False) -> None:
        follow_member(institution_key)
        requested_by = self.tools.requested_by(institution_key)
        await self.tools.gate.probe(institution_key, Permit.LISTING)
        await self.tools.service.queue(
            institution_key,
            continue_from=0,
            page_size=1,
            requested_by=requested_by,
            connects=connects,
            keep=None if connects else unkept,
        )

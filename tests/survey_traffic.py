"""Traffic of a bank in virtual time, of every kind that can contradict an assumption about the service."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import httpx
from redis.asyncio import Redis

from callkeeper.calls.notes import AssignWish, Distrusted, Verified
from callkeeper.calls.pause import Pause, PauseScope
from callkeeper.calls.rules import load_rules
from callkeeper.calls.store.pausing import Pausing
from callkeeper.calls.survey import Survey
from callkeeper.service.errors import ServiceUnavailable
from callkeeper.service.survey_questions import Asking, Ended
from callkeeper_sandbox.service.access import Credentials
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.pushed import PushedRig
from tests.sandbox_fixtures import CREDENTIALS, KEY

LAST = "cu-2"
CROWD = 12
BURST = 90
"""So many calls at once need more than a hundred requests in a second."""

END_S = 40.0
VERIFIED_S = 20.0


class Traffic:
    """Calls of every kind at one institution, and some at another one, under variants of the stand-in."""

    def __init__(
        self,
        names: Sequence[str],
        redis: Redis,
        *,
        credentials: Credentials = CREDENTIALS,
        between: Callable[[httpx.AsyncBaseTransport], httpx.AsyncBaseTransport] = lambda stage: stage,
    ) -> None:
        self.redis = redis
        self.rig = PushedRig(
            redis, load_rules("demo"), institutions=(KEY, LAST), between=between, credentials=credentials
        )
        self.stage = self.rig.stage
        self.stage.sandbox.choose(names)
        self.number = 0
        self.burst = 0
        self.asked: list[str] = []
        self.works = True

    async def run(self, waves: int = 1, *, asks: bool = True) -> Survey:
        """Let calls come and end, and return what was seen. One wave takes some three minutes; ``asks``: ask as well."""
        async with self.stage.client, self.stage.sandbox.client:
            await self.rig.pass_time(6)
            await self._watch_only(asks=asks)
            for _ in range(waves):
                await self._wave()
            return await self.survey()

    async def ask(self) -> None:
        """Ask the free questions. ``asked`` are then the requests that were sent."""
        ended = next((call for call in self.stage.world.state.calls.values() if call.ended_at), None)
        asking = Asking(
            self.rig.config,
            self.rig.figures.see,
            operators=lambda _: "bot",
            transport=self.rig.wire,
            permit=self._permit,
            now=lambda: self.rig.clock.now,
            ended=Ended(ended.institution_key, ended.voice_id) if ended is not None else None,
        )
        with suppress(ServiceUnavailable):
            await asking.run()
        self.asked = asking.sent

    async def _permit(self, _institution_key: str) -> None:
        if self.works:
            await self.rig.pass_time(1)
        else:
            self.stage.advance(1)

    async def survey(self) -> Survey:
        """Return what was seen up to now."""
        await self.rig.writer.write_async(self.redis)
        redis: Any = self.redis  # its stubs cannot know that answers are bytes here
        return Survey.parse(await redis.hgetall(self.rig.store.keys.survey))

    async def _watch_only(self, *, asks: bool) -> None:
        """Let calls come while everything automatic is paused, as on the first day, and ask the questions."""
        pausing, now = Pausing(self.redis), self.rig.clock.now
        await pausing.pause(None, Pause(scope=PauseScope.ALL, operator="ann", because="the first day", at=now))
        self._call(end_s=8)
        for _ in range(6):
            self._call(end_s=80)
            await self.rig.pass_time(1)
        self._call(end_s=80, key=LAST)
        await self.rig.pass_time(14)
        if asks:
            await self.ask()
        await pausing.resume(None, operator="ann", because="seen", at=self.rig.clock.now)
        await self.rig.pass_time(10)

    async def _wave(self) -> None:
        passcode = Happening(Kind.MFA_VALIDATED, VERIFIED_S, "operator-2")
        for _ in range(self.burst):
            self._call(Happening(Kind.GREEN, 3), end_s=15)
        self._call(Happening(Kind.GREEN, 8))
        self._call(Happening(Kind.MISMATCH, 6), Happening(Kind.HIGH_RISK, 6))
        self._call(Happening(Kind.GREEN, 8), key=LAST)
        self._call(passcode, key=LAST)
        self._call(member=False)
        ended_enrolled = self._call(passcode)
        enrolled = [self._call(end_s=110) for _ in range(3)]
        over = self._call(Happening(Kind.END, 60))
        for number in range(CROWD):
            self._call(Happening(Kind.GREEN, 5), end_s=20 + number)
            await self.rig.pass_time(1)
        await self._say(over, AssignWish(operator="ann", said_at=self.rig.clock.now, person_id="p-1"))
        for call in enrolled:
            await self._say(call, self._verified(call))
        await self.rig.pass_time(END_S)
        # Members call again, and are not who they say they are, while the first call goes on and after its end.
        again = [self._call(phone=call.phone_number, end_s=30) for call in (ended_enrolled, enrolled[0])]
        ended = self._call(end_s=10)
        await self.rig.pass_time(10)
        for call in again:
            await self._say(call, Distrusted(operator="ann", said_at=self.rig.clock.now, reason="another voice"))
        await self.rig.pass_time(8)
        await self._say(ended, Distrusted(operator="ann", said_at=self.rig.clock.now, reason="it was fraud"))
        await self.rig.pass_time(95)

    def _verified(self, call: Call) -> Verified:
        person_id = call.person_id or ""
        at = self.rig.clock.now
        return Verified(operator="ann", said_at=at, person_id=person_id, validation_type="KnowledgeBasedAuth")

    async def _say(self, call: Call, note: AssignWish | Distrusted | Verified) -> None:
        for voice_id in dict.fromkeys((call.voice_id.lower(), call.voice_id)):
            if await self.rig.find(voice_id) is not None:
                await self.rig.store.note(self.rig.call_id(call)._replace(voice_id=voice_id), note, even_settled=True)
                return

    def _call(
        self,
        *script: Happening,
        key: str = KEY,
        end_s: float = END_S,
        member: bool = True,
        phone: str | None = None,
    ) -> Call:
        self.number += 1
        if phone is None:
            phone = f"555{(self.number * 4_569_263) % 10_000_000:07}"
            if member:
                self.stage.world.add_member(
                    key,
                    f"member-{self.number:05}",
                    [phone],
                    first_name=f"Jodelle{self.number}",
                    last_name="Wintergreen",
                )
        ends = () if any(each.kind is Kind.END for each in script) else (Happening(Kind.END, end_s),)
        return self.stage.call(*script, *ends, phone_number=phone, key=key)


async def surveyed(names: Sequence[str], redis: Redis, waves: int = 1) -> Survey:
    """Return the survey of traffic under variants, in an empty Redis."""
    await redis.flushdb()
    traffic = Traffic(names, redis)
    traffic.burst = BURST if "limit-100" in names else 0
    return await traffic.run(waves)

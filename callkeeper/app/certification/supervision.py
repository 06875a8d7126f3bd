"""One run of the checklist: a person at the terminal makes the test call, and its evidence is gathered.

Prompts stand outside the event loop, so that Ctrl-C ends them. What happens to the call is printed in fixed words.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeVar

import click
from redis.asyncio import Redis

from callkeeper.app.certification.evidence import CallEvidence, gather, read_survey, sample_at
from callkeeper.app.certification.verdicts import SAMPLE_BEFORE
from callkeeper.app.redis_query import query_redis, redis_now
from callkeeper.app.terminal import WholeNumber, safe, say
from callkeeper.calls.item_names import CallId
from callkeeper.calls.record import Call
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.queries import Queries
from callkeeper.calls.survey import rows_of
from callkeeper.calls.trail import Entry

T = TypeVar("T")
IsEnough = Callable[[Sequence[Entry]], bool]
"""Tells from a trail whether enough was seen."""

LOOK_EVERY_S: Final = 0.5
SAMPLE_WAIT_S: Final = 20.0
SILENCE_S: Final = 20.0
CHECK_WAIT_S: Final = 30.0
"""How much longer the caller stays silent if no check was answered by then."""
AFTERMATH: Final = timedelta(seconds=20)
"""How long outcomes may take to be delivered after the call is settled, and a push under another id to be understood."""

_TOLD: Final = {
    "pushed": "a push came",
    "listed": "the queue lists it",
    "checked": "a check was answered",
    "check_failed": "a check brought no answer",
    "ended": "its end was noticed",
    "settled": "it is settled",
    "sent": "a request was sent that changes something",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPlan:
    """How the test call is made.

    Attributes:
        asks: Whether a person at the terminal is told what to do, and asked.
        call_id: A call that exists already; None: the next new one.
        wait_s: How long to wait for the call, and again for its end, in seconds.
    """

    institution_key: str
    asks: bool
    call_id: CallId | None = None
    wait_s: float
    was_silent: bool = True


class Supervision:
    """One run of the checklist."""

    def __init__(self, plan: CallPlan) -> None:
        self._plan = plan
        self._told = 0
        self._hung_up_at: datetime | None = None

    def run(self) -> CallEvidence:
        """Go through the steps; return what was seen.

        Raises:
            click.Abort: Nobody answers at the terminal.
            callkeeper.app.terminal.Failed: Redis does not answer.
        """
        call_id = self._plan.call_id
        if call_id is None:
            self._step_ask()
            self._step_sample()
            began_at, call_id = self._step_call()
        else:
            began_at = query_redis(lambda redis, keys: _began_at(redis, keys, call_id))
        if call_id is not None:
            self._step_end(call_id)
        return query_redis(lambda redis, keys: self._gather(redis, keys, began_at, call_id))

    def _step_ask(self) -> None:
        say("", "1. Ask")
        states = [row.state for row in rows_of(query_redis(read_survey))]
        counts = ", ".join(f"{states.count(state)} {state.replace('_', ' ')}" for state in sorted(set(states)))
        say(f"   The survey: {counts or 'nothing yet'}. To ask the service: callkeeper service survey --ask")

    def _step_sample(self) -> None:
        say("", "2. The sample")
        since = query_redis(lambda redis, _keys: redis_now(redis))
        at = query_redis(lambda redis, keys: sample_at(redis, keys, self._key))
        if not _is_fresh(at, since):
            place = f"In the service's dashboard (Settings, Push Notifications) send a sample for {safe(self._key)}"
            self._prompt(f"{place}, then press Enter")
            if self._plan.asks:
                at = query_redis(lambda redis, keys: until(lambda: self._new_sample(redis, keys, since), SAMPLE_WAIT_S))
        say(f"   It came at {at:%H:%M:%S}." if at is not None and _is_fresh(at, since) else "   None came.")

    async def _new_sample(self, redis: Redis, keys: Keys, now: datetime) -> datetime | None:
        at = await sample_at(redis, keys, self._key)
        return at if _is_fresh(at, now) else None

    def _step_call(self) -> tuple[datetime, CallId | None]:
        """Wait for the test call; return when the wait began, and which call it is."""
        say("", "3. The test call")
        self._prompt(
            f"Get ready to call {safe(self._key)} from the phone of the test member, without saying a word, then press Enter"
        )
        began_at, wait_s = query_redis(lambda redis, _keys: redis_now(redis)), self._plan.wait_s
        say(f"   Call now. Waiting for a new call, at most {wait_s:.0f} s ...")
        found = query_redis(lambda redis, keys: until(lambda: self._new_calls(redis, keys, began_at), wait_s))
        if not found:
            say("   No call came.")
            return began_at, None
        call = found[0] if len(found) == 1 or not self._plan.asks else _choose(found)
        call_id = CallId(call.institution_key, call.voice_id)
        say(f"   Found: {call.voice_id}")
        if self._plan.asks:
            self._supervise(call_id)
        return began_at, call_id

    def _supervise(self, call_id: CallId) -> None:
        """Tell the caller what to do, until the caller has hung up."""
        self._prompt("Assign the call to the test member, as an agent does, then press Enter")
        say(f"   Stay silent for {SILENCE_S:.0f} s more, and until a check was answered ...")
        self._watch(call_id, SILENCE_S)
        self._watch(call_id, CHECK_WAIT_S, lambda trail: any(entry.what == "checked" for entry in trail))
        self._prompt("Hang up, and press Enter at that moment")
        self._hung_up_at = query_redis(lambda redis, _keys: redis_now(redis))

    async def _new_calls(self, redis: Redis, keys: Keys, since: datetime) -> list[Call] | None:
        """Return the institution's calls that were first seen since; None if there are none."""
        found = [
            call
            async for call in Queries(redis, keys=keys).live()
            if call.institution_key == self._key
            and call.life.first_seen_at is not None
            and call.life.first_seen_at >= since
        ]
        return found or None

    def _step_end(self, call_id: CallId) -> None:
        say("", "The call" if self._plan.call_id is not None else "4. The end")
        if not self._watch(call_id, self._plan.wait_s):
            say(f"   It is not settled after {self._plan.wait_s:.0f} s.")

    def _watch(self, call_id: CallId, wait_s: float, is_enough: IsEnough | None = None) -> bool:
        """Print what happens to the call until it is settled, or enough was seen, or the time is over.

        Return whether it was not only the time.
        """

        async def look(redis: Redis, keys: Keys) -> bool | None:
            queries = Queries(redis, keys=keys)
            call, trail = await queries.load(call_id), await queries.trail(call_id)
            for entry in trail[self._told :]:
                _tell(entry)
            self._told = len(trail)
            is_over = call is None or call.is_settled
            return True if is_over or (is_enough is not None and is_enough(trail)) else None

        return query_redis(lambda redis, keys: until(lambda: look(redis, keys), wait_s)) is not None

    async def _gather(self, redis: Redis, keys: Keys, began_at: datetime, call_id: CallId | None) -> CallEvidence:
        """Read everything; wait a moment for what is still to come once a call is settled."""
        give_up_at = await redis_now(redis) + AFTERMATH
        while True:
            evidence = await gather(
                redis,
                keys,
                institution_key=self._key,
                began_at=began_at,
                call_id=call_id,
                hung_up_at=self._hung_up_at,
                was_silent=self._plan.was_silent,
            )
            if call_id is None or _is_complete(evidence) or evidence.taken_at >= give_up_at:
                return evidence
            await asyncio.sleep(LOOK_EVERY_S)

    def _prompt(self, text: str) -> None:
        """Tell the person at the terminal what to do, and wait for Enter. With --yes there is nobody."""
        if self._plan.asks:
            click.prompt(f"   {text}", default="", show_default=False, prompt_suffix=" ")

    @property
    def _key(self) -> str:
        return self._plan.institution_key


async def until(look: Callable[[], Awaitable[T | None]], wait_s: float) -> T | None:
    """Look until something is seen, or the time is over."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + wait_s
    while True:
        seen = await look()
        if seen is not None or loop.time() >= until_s:
            return seen
        await asyncio.sleep(LOOK_EVERY_S)


async def _began_at(redis: Redis, keys: Keys, call_id: CallId) -> datetime:
    """Return when a call was first seen."""
    call = await Queries(redis, keys=keys).load(call_id)
    return (call.life.first_seen_at if call is not None else None) or await redis_now(redis)


def _is_fresh(at: datetime | None, now: datetime) -> bool:
    return at is not None and at >= now - SAMPLE_BEFORE


def _is_complete(evidence: CallEvidence) -> bool:
    """Tell whether all outcomes were delivered, and the pushes that seem to be about the call were joined with it."""
    outcomes = evidence.deliveries
    are_delivered = not outcomes.is_wanted or (outcomes.due > 0 and outcomes.accepted >= outcomes.due)
    return are_delivered and not (evidence.stray and not evidence.entries("pushed"))


def _choose(found: Sequence[Call]) -> Call:
    """Ask which of several new calls is the test call."""
    for n, call in enumerate(found, 1):
        say(f"   {n}: {call.voice_id}, first seen at {call.life.first_seen_at:%H:%M:%S}")
    number: int = click.prompt("   Which one is the test call?", type=WholeNumber(1, len(found)))
    return found[number - 1]


def _tell(entry: Entry) -> None:
    """Print one entry of the trail in fixed words, if it is one that the checklist waits for."""
    words = _TOLD.get(entry.what)
    if words is not None:
        say(f"   {entry.at:%H:%M:%S} {words}{f' ({entry.kind})' if entry.kind else ''}")

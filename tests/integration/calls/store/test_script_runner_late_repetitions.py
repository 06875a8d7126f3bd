"""Every script may arrive again at any later time: a closed connection can deliver what the client has long repeated.

A call is lived through, with all that is written for it. After every write, all earlier writes are delivered once more.
"""

import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, get_args

import pytest
from redis.asyncio import Redis

from callkeeper.calls.claimed_item import ClaimedItem, Placement, WriteRefused
from callkeeper.calls.item_names import CallId
from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.metrics.counting import Figures
from callkeeper.calls.metrics.redis_writer import Author, FigureWriter
from callkeeper.calls.notes import CheckWish, Verified
from callkeeper.calls.pause import Pause, PauseScope
from callkeeper.calls.record import Call, Plan
from callkeeper.calls.record_storage import encode_call
from callkeeper.calls.store.archive_queue import ArchiveQueue
from callkeeper.calls.store.breakers import RequestResult
from callkeeper.calls.store.claims import Store
from callkeeper.calls.store.inbox import Ask
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.pausing import Pausing
from callkeeper.calls.store.push_intake import Intake
from callkeeper.calls.store.script import Arg, Script, ScriptName
from callkeeper.calls.store.script_runner import Scripts
from callkeeper.calls.store.sso_token import RedisTokenStore
from callkeeper.service import Secret
from callkeeper.service.push_event import PushEvent
from callkeeper.service.tokens import Login, Shut
from tests.integration.calls.hand import Hand
from tests.integration.calls.store.test_claims import LINE, NEWER, RECORD, dump
from tests.sandbox_fixtures import KEY, START

A, B = CallId(KEY, "v-1"), CallId(KEY, "v-2")
WORD = Verified(person_id="p-1", validation_type="Other", operator="ann", said_at=START, wish="w-1")
ASKED = CheckWish(operator="ann", said_at=START, wish="w-2")

Sent = tuple[str, Sequence[Any], Sequence[Any]]
"""A script's name, its keys and its arguments."""

FLEETING = {b"ck:2:wake", b"ck:2:wakeup"}
"""What wakes workers: it lives for a second, and one wake-up more or less is late by no more than that."""


class Recorder(Scripts):
    """Scripts that remember what they were called with."""

    def __init__(self, redis: Redis, sent: list[Sent], now_ms: Hand | None = None, *, keys: Keys | None = None) -> None:
        super().__init__(redis, keys=Keys() if keys is None else keys, now_ms=now_ms)
        self.sent = sent

    async def call(self, name: ScriptName, /, *, rest: Sequence[Arg] = (), **given: Any) -> Any:
        """Run a script and remember it."""
        named = {key: value for key, value in given.items() if key not in {"confirmed", "replicated", "within_s"}}
        self.sent.append((name, *self._known[name].arguments("", named, rest)))
        return await super().call(name, rest=rest, **given)


class Life:
    """One call and all that is written for it, step by step."""

    def __init__(self, redis: Redis, hand: Hand) -> None:
        self.redis: Any = redis
        self.hand = hand
        self.sent: list[Sent] = []
        self.store, self.other = self._store(), self._store()
        self.archive = ArchiveQueue(redis, Keys(), now_ms=hand)
        self.archive._scripts = Recorder(redis, self.sent, now_ms=hand, keys=self.archive.keys)
        self.intake = Intake(redis, now_ms=hand, within_s=60.0)
        self.intake._scripts = Recorder(redis, self.sent, now_ms=hand)
        self.pausing = Pausing(redis)
        self.pausing._scripts = Recorder(redis, self.sent)
        self.figures = Figures()
        self.writer = FigureWriter(self.figures, Author("worker-1", "worker"), now_ms=hand, memory=lambda: 1)

    def _store(self) -> Store:
        store = Store(self.redis, archive=Keys().archive, now_ms=self.hand, monotonic=lambda: self.hand.ms / 1000)
        store._scripts = store.breakers.scripts = Recorder(self.redis, self.sent, now_ms=self.hand)
        return store

    async def claim(self, store: Store, call_id: CallId) -> ClaimedItem:
        """Claim whatever is due; let go of the rest, and return what was claimed of one call."""
        self.hand.ms += 2000
        item = {claimed.member: claimed for claimed in await store.claim(10)}
        for member, other in item.items():
            if member != call_id.member:
                await store.save(other, None, Placement(60_000))
        return item[call_id.member]

    async def steps(self) -> Any:
        """Take the steps of a life; yield after each."""
        event = PushEvent(type="CallStart", institution_key=KEY, voice_id="v-1", alternate_voice_id="alt-1")
        await self.intake.record(event, event_id="ev-1")
        yield
        item = await self.claim(self.store, A)
        yield
        await self.store.save(item, RECORD, Placement(0, listed="live"), entries=[LINE])
        yield
        item = await self.claim(self.store, A)
        await self.store.keep(item, RECORD, entries=[LINE])
        yield
        await self.store.keep(item, NEWER, entries=[LINE], book_check=1)
        yield
        await self.store.note(A, WORD, wake=True)
        yield
        with pytest.raises(WriteRefused, match="notes"):
            await self.store.keep(item, RECORD, only_if_no_notes=True)
        yield
        await self.store.save(item, NEWER, Placement(0, listed="live"), entries=[LINE], checks=1)
        yield
        item = await self.claim(self.other, A)
        await self.pausing.pause(None, Pause(scope=PauseScope.ALL, operator="ann", because="x", at=START))
        yield
        with pytest.raises(WriteRefused, match="paused"):
            await self.other.keep(item, RECORD, unless_paused=PauseScope.EFFECTS, entries=[LINE])
        await self.pausing.resume(None, operator="ann", because="x", at=START)
        yield
        await self.other.keep(item, NEWER, entries=[LINE], book_check=2)
        yield
        self.hand.ms += 60_000
        item = await self.claim(self.store, A)
        await self.store.keep(item, NEWER, entries=[LINE])
        yield
        await self.store.save(item, None, Placement(0))
        for _ in range(2):
            await self.other.leave(await self.claim(self.other, A))
            yield
            self.hand.ms += 60_000
        await self.store.save(await self.claim(self.store, A), NEWER, Placement(0), entries=[LINE])
        yield
        for _ in range(6):
            await self.store.breakers.report(RequestResult.FAILURE, KEY)
        yield
        self.hand.ms += 120_000
        await self.store.breakers.take_probes()
        await self.other.breakers.report(RequestResult.ANSWER, KEY)
        yield
        for _ in range(2):
            self.figures.count(figure.REDIS_FAILED)
            self.sent.append(("add_figures", *self.writer._arguments(self.figures.batch())))
            await self.writer.write_async(self.redis)
            yield
        item = await self.claim(self.store, A)
        await self.store.merge(item, Call(institution_key=KEY, voice_id="v-1", plan=Plan(checks_used=2)), B)
        yield
        item = await self.claim(self.store, B)
        await self.store.note(B, ASKED)
        yield
        await self.store.save(item, encode_call(Call(institution_key=KEY, voice_id="v-2")), Placement(0, listed="live"))
        yield
        item = await self.claim(self.other, B)
        await self.other.save(item, RECORD, Placement(None, listed="settled", attention="look"), entries=[LINE])
        yield
        await self.archive.archived((await self.archive.claim(1))[0])
        yield
        await self.store.tidy()
        yield

    async def repeat(self, sent: Sent) -> None:
        """Deliver a script once more."""
        name, keys, args = sent
        await self.redis.eval(Script(Keys(), name).source, len(keys), *keys, *args)


def lasting(stored: dict[bytes, Any]) -> dict[bytes, Any]:
    """Leave out what ends by itself within a minute, and until when Redis was seen to be there."""
    return {
        key: {k: v for k, v in value.items() if k not in {b"seen", b"claimed_ms"}} if key == b"ck:2:epoch" else value
        for key, value in stored.items()
        if key not in FLEETING and not key.startswith(b"ck:2:process:")
    }


async def test_every_script_may_be_repeated_at_any_later_time(redis: Redis, hand: Hand) -> None:
    """Whatever is delivered once more, and whenever: Redis holds what it held before (C14)."""
    life = Life(redis, hand)
    async for _ in life.steps():
        before = lasting(await dump(redis))
        for sent in list(life.sent):
            # The present is not part of a repetition: Redis asks its own clock.
            await life.repeat((sent[0], sent[1], [hand(), *sent[2][1:]]))
        assert lasting(await dump(redis)) == before, f"carried out twice: one of {[name for name, _, _ in life.sent]}"
    untried = set(get_args(ScriptName)) - {name for name, _, _ in life.sent}
    assert untried == {
        "pulse",
        "retry",
        "permits",
        "lower_rate",
        "forget_load",
        "lead",
        "enlist",
        "check_turn",
    }, (
        "pulse and lead write nothing that lasts; a failed login that counts twice, a probe, a look, a turn more are "
        "safe"
    )


async def test_look_that_is_asked_for_again_is_a_look_more(redis: Redis, hand: Hand) -> None:
    """What is left for an institution or by a listing is no statement: a repetition costs a look, or a fold of nothing."""
    life = Life(redis, hand)
    await life.store.request_listing(KEY, Ask.WIDE)
    await life.repeat(life.sent[-1])
    assert await redis.hlen("ck:2:inbox:i:cu-1") == 1


TOKEN_STEPS: list[Callable[[RedisTokenStore], Awaitable[object]]] = [
    lambda store: store.claim_login("n-1", instead_of=None, lease_s=8),
    lambda store: store.save_login("n-1", Login(Secret("t-1"), frozenset({KEY})), pause_s=1),
    lambda store: store.slide("n-1", min_interval_s=1),
    lambda store: store.refuse("n-1", "queue cu-1"),
    lambda store: store.slide("n-1", min_interval_s=1),
    lambda store: store.refuse("n-1", "details cu-1"),
    lambda store: store.clear("details cu-1"),
    lambda store: store.claim_login("n-2", instead_of="n-1", lease_s=8),
    lambda store: store.fail_login("n-2", Shut.OUTAGE, pause_s=1),
    lambda store: store.claim_login("n-3", instead_of="n-1", lease_s=8),
    lambda store: store.save_login("n-3", Login(Secret("t-3"), frozenset({KEY})), pause_s=1),
    lambda store: store.refuse("n-3", "queue cu-1"),
    lambda store: store.probe("queue cu-1"),
    lambda store: store.refuse("n-3", "details cu-1"),
    lambda store: store.clear("queue cu-1"),
    lambda store: store.load(),
]


async def test_every_token_script_may_be_repeated_at_any_later_time(redis: Redis) -> None:
    """No repetition takes the turn to log in, prolongs a token or bars an institution."""
    seconds = itertools.count(1000, 20)
    store = RedisTokenStore(redis, clock=lambda: float(next(seconds)))
    sent: list[tuple[Any, dict[str, Any]]] = []
    run = store._run

    async def remember(name: Any, **given: Any) -> Any:
        answer = await run(name, **given)
        sent.append((name, {**given, "claimer_key": store._claimer_key, "number": store._calls}))
        return answer

    store._run = remember  # type: ignore[method-assign]
    for step in TOKEN_STEPS:
        await step(store)
        before = await dump(redis)
        for name, given in sent:
            await store._scripts[name](*store._known[name].arguments(next(seconds) * 1000, given))
            assert await dump(redis) == before, f"{name} was carried out twice"

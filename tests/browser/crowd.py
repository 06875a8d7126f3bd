"""Institutions and calls that are only in Redis, so that the board can be seen with hundreds and thousands of them.

No worker moves these calls: each is due in a minute, and the block that made them is over by then.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from redis import Redis

from callkeeper.calls.effect_ledger import Effect, EffectState
from callkeeper.calls.item_names import CallId
from callkeeper.calls.record import Call, Candidate, Phase, Reason
from callkeeper.calls.record_storage import encode_call
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.last_listing import Standing
from callkeeper.calls.trail import Entry, encode_entry
from tests.records import stored_value
from tests.unit.calls.specimens import call, reading

KEPT_MS: Final = 900_000
LONG_NAME: Final = "Confederated Teachers', Firefighters' and Municipal Employees' Example Credit Union"
NAMES: Final = ("Ada Example", "Wolfeschlegelsteinhausenberger Featherstonehaugh-Example", "Bo Example")


def key_of(n: int) -> str:
    """Return the key of an institution."""
    return f"crowd-{n:03d}"


def standing(n: int, now: datetime) -> Standing:
    """Return an institution as the service names it. Every 40th is not active."""
    name = LONG_NAME if n % 25 == 7 else f"Example Credit Union {n:03d}"
    status = "Disabled" if n % 40 == 39 else "Active"
    return Standing(key=key_of(n), name=name, status=status, has_voice_auth=True, told_at=now)


def crowd_of(calls: int, institutions: int, now: datetime) -> list[Call]:
    """Return live calls in many states, the newest last; the first institutions have the most, the last fifth none."""
    busy = max(1, institutions * 4 // 5)
    return [_call(n, key_of(int((n * 7919 % calls / calls) ** 2 * busy)), now, calls) for n in range(calls)]


def _call(n: int, key: str, now: datetime, of: int) -> Call:
    person = f"p-{n % 997}"
    known: dict[str, Any] = {
        "institution_key": key,
        "voice_id": f"{key}-{n}",
        "phone_number": f"55501{n % 100_000:05}",
        "started_at": now - timedelta(seconds=(of - n) * 0.3),
        "first_seen_at": now - timedelta(seconds=(of - n) * 0.3),
        "next_check_at": now + timedelta(minutes=10),
        "saved_at": now,
        "checks_used": n % 20,
        "person_id": person,
        "candidates": (Candidate(person_id=person, name=NAMES[n % len(NAMES)]),),
        "reading": reading(person_id=person),
    }
    if n % 5 == 0:
        known["reading"] = reading(person_id=person, policies=("Green Voice Authentication",))
    elif n % 37 == 1:
        known["reading"] = reading(person_id=person, policies=("Red Risky Caller",))
        known["red_seen"] = True
    elif n % 53 == 2:
        known |= {"person_id": None, "assign": Effect(), "reading": reading(person_id=None)}
        known["candidates"] = (Candidate(person_id=person, name=NAMES[0]), Candidate(person_id="p-x", name=NAMES[2]))
    elif n % 401 == 3:
        known["reject"] = Effect(state=EffectState.UNRESOLVED, person_id=person, rule="distrusted", sent_at=now)
    return call(**known)


def settled_of(calls: int, institutions: int, now: datetime) -> list[Call]:
    """Return settled calls, the newest last."""
    reasons = (Reason.AUTHENTICATED, Reason.AUTHENTICATED, Reason.ENROLLED, Reason.UNDECIDED, Reason.REJECTED)
    found = []
    for n in range(calls):
        live = _call(n, key_of(n * 31 % institutions), now - timedelta(minutes=10), calls)
        reason = reasons[n % len(reasons)]
        effect = Effect(
            state=EffectState.CONFIRMED, person_id=live.seen.person_id, rule=_RULES.get(reason), sent_at=now
        )
        found.append(
            call(
                **{
                    name: stored_value(live, name)
                    for name in ("phone_number", "person_id", "candidates", "checks_used")
                },
                institution_key=live.institution_key,
                voice_id=f"{live.voice_id}-over",
                started_at=live.life.started_at,
                end_seen_at=(live.life.started_at or now) + timedelta(seconds=95 + n % 300),
                settled_at=now - timedelta(seconds=calls - n),
                phase=Phase.SETTLED,
                reason=reason,
                reading=live.seen.reading,
                enroll=effect if reason is Reason.ENROLLED else Effect(),
                reject=effect if reason is Reason.REJECTED else Effect(),
            )
        )
    return found


_RULES: Final = {Reason.ENROLLED: "verified", Reason.REJECTED: "distrusted"}


def _trail(record: Call, now: datetime) -> list[bytes]:
    rule = _RULES.get(record.life.reason or Reason.UNDECIDED)
    lines = [Entry(at=now, what="decided", rule=rule, kind=str(record.life.reason))] if rule else []
    return [encode_entry(line) for line in lines]


@contextmanager
def crowded(
    redis_url: str, *, calls: int = 2000, institutions: int = 300, settled: int = 0, kept_ms: int = KEPT_MS
) -> Iterator[list[Call]]:
    """Keep institutions and calls in Redis until the block ends; yield the live calls."""
    keys, now = Keys(), datetime.now(UTC)
    live, over = crowd_of(calls, institutions, now), settled_of(settled, institutions, now)
    with Redis.from_url(redis_url) as redis:
        pipe, now_ms = redis.pipeline(transaction=False), int(time.time() * 1000)
        for n in range(institutions):
            pipe.hset(keys.standings, key_of(n), msgspec.json.encode(standing(n, now)))
        for n, record in enumerate([*live, *over]):
            member = CallId(record.institution_key, record.voice_id).member
            pipe.hset(keys.item(member), "rec", encode_call(record))
            if record.is_settled:
                pipe.zadd(keys.settled, {member: now_ms - (len(live) + len(over) - n) * 1000})
                if trail := _trail(record, now):
                    pipe.rpush(keys.trail(member), *trail)
            else:
                pipe.zadd(keys.live, {member: n})
                pipe.zadd(keys.due, {member: now_ms + kept_ms})  # workers take a live call that is in no schedule
            if record.ledger.reject.state is EffectState.UNRESOLVED:
                pipe.hset(keys.attention, member, "reject unresolved")
        pipe.execute()
        try:
            yield live
        finally:
            pipe.hdel(keys.standings, *(key_of(n) for n in range(institutions)))
            for record in [*live, *over]:
                member = CallId(record.institution_key, record.voice_id).member
                pipe.delete(keys.item(member), keys.trail(member)).hdel(keys.attention, member)
                for listed in (keys.live, keys.settled, keys.due):
                    pipe.zrem(listed, member)
            pipe.execute()


@contextmanager
def coming_and_going(redis_url: str, calls: Sequence[Call], *, a_second: int = 40) -> Iterator[None]:
    """Let so many calls end and so many begin each second, all over the institutions, until the block ends."""
    over, keys = threading.Event(), Keys()

    def change() -> None:
        at = 0
        with Redis.from_url(redis_url) as redis:
            while not over.wait(0.1):
                pipe = redis.pipeline(transaction=False)
                for n in range(at, at + a_second // 10):
                    gone, back = calls[n % len(calls)], calls[(n - len(calls) // 2) % len(calls)]
                    for record, is_gone in ((gone, True), (back, False)):
                        member = CallId(record.institution_key, record.voice_id).member
                        pipe.hdel(keys.item(member), "rec") if is_gone else pipe.hset(
                            keys.item(member), "rec", encode_call(record)
                        )
                        pipe.xadd(keys.changes, {"member": member})
                at += a_second // 10
                pipe.execute()

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        with Redis.from_url(redis_url) as redis:
            pipe = redis.pipeline(transaction=False)
            for record in calls:
                member = CallId(record.institution_key, record.voice_id).member
                pipe.hset(keys.item(member), "rec", encode_call(record))
            pipe.execute()

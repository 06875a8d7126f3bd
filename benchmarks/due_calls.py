"""Calls that are due for a check, stored in Redis as a worker stores them: assigned, watched, undecided."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from benchmarks.service import KEY, PERSON, STATUS
from callkeeper.calls.effect_ledger import Effect, EffectState
from callkeeper.calls.fact_derivation import facts_of
from callkeeper.calls.item_names import CallId
from callkeeper.calls.notes import Listed, fingerprint
from callkeeper.calls.record import Call, Candidate, Ledger, Life, Marks, Names, Phase, Plan, Reading, Seen
from callkeeper.calls.record_storage import encode_call
from callkeeper.calls.rules import RuleBook
from callkeeper.calls.rules.matching import judge
from callkeeper.calls.store.job_queue import Waker
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.trail import Entry, encode_entry
from callkeeper_sandbox.service import population


def settings(folder: Path) -> dict[str, str]:
    """Return the rules of the measurement: one check is due; the next check and the next read are much later."""
    rules = folder / "rules.toml"
    shipped = (files("callkeeper.calls") / "rulebooks" / "default.toml").read_text()
    slow = shipped.replace("undecided_s = 8.0", "undecided_s = 60.0")
    rules.write_text(re.sub(r"(?m)^at = .*$", "at = [10, 70, 130, 190]", slow))
    return {"CALLKEEPER_RULES": str(rules)}


_BATCH = 500
_PHONE = population.phone(KEY, 10)
_LISTED_AS = fingerprint(
    Listed(
        phone_number=_PHONE,
        listed_at=datetime.now(UTC),
        started_at=datetime.now(UTC),
        person_id=PERSON,
        core_username="bench",
        candidates=(Candidate(person_id=PERSON),),
    )
)
"""How the stand-in's queue shows these calls, so that a listing changes none of them."""


def due_call(voice_id: str, now: datetime, book: RuleBook) -> Call:
    """Return a call whose first check is due now and that was just read."""
    call = Call(
        institution_key=KEY,
        voice_id=voice_id,
        saved_at=now,
        life=Life(
            phase=Phase.LIVE,
            listed_at=now - timedelta(seconds=11),
            started_at=now - timedelta(seconds=12),
            first_seen_at=now - timedelta(seconds=12),
        ),
        names=Names(alternate_id=f"{voice_id}-alternate", phone_number=_PHONE),
        seen=Seen(
            person_id=PERSON,
            core_username="bench",
            reading=Reading(read_at=now, voice_id=voice_id, person_id=PERSON, core_username="bench", status=STATUS),
            earlier_marks=Marks(person_id=PERSON, has_number=True),
        ),
        ledger=Ledger(
            assigned_person_id=PERSON,
            assigned_as="bench",
            assign=Effect(state=EffectState.APPLIED, person_id=PERSON, requested_by="bench", attempts=1),
        ),
        plan=Plan(watch_from=now - timedelta(seconds=11), next_check_at=now, next_read_at=now + timedelta(seconds=60)),
    )
    facts = facts_of(call, call.last_claim, book.policies)
    return replace(
        call, written=replace(call.written, verdict=judge(facts, book, KEY).fingerprint, facts=facts.signature)
    )


def lay_due_calls(redis: Any, voice_ids: list[str], book: RuleBook) -> None:
    """Write calls into Redis, all due at once, and wake the workers as a push does."""
    now = datetime.now(UTC)
    lay_calls(redis, {voice_id: due_call(voice_id, now, book) for voice_id in voice_ids}, dict.fromkeys(voice_ids, now))
    redis.rpush(Keys().wakeup, "1")
    Waker(redis).enqueue("a benchmark")


def lay_calls(redis: Any, calls: Mapping[str, Call], due_at: Mapping[str, datetime]) -> None:
    """Write listed, live calls into Redis, each due at its time; then add all of them to the due set at once."""
    keys = Keys()
    everything = list(calls.values())
    scores: dict[str, int] = {}
    for begin in range(0, len(everything), _BATCH):
        with redis.pipeline(transaction=False) as pipe:
            for call in everything[begin : begin + _BATCH]:
                member = CallId(KEY, call.voice_id).member
                scores[member] = int(due_at[call.voice_id].timestamp() * 1000)
                pipe.hset(keys.item(member), mapping={"rec": encode_call(call), "checks": call.plan.checks_used})
                pipe.hset(keys.opened(KEY), call.voice_id, _LISTED_AS)
                pipe.zadd(keys.live, {member: scores[member]})
                pipe.rpush(
                    keys.trail(member), encode_entry(Entry(at=due_at[call.voice_id], what="listed", candidates=1))
                )
            pipe.execute()
    redis.zadd(keys.due, scores)

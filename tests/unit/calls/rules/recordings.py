"""Recorded calls to tell, replay and count: made of facts at moments, judged by rules as a mover would."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from callkeeper.calls.effect_ledger import EffectState
from callkeeper.calls.facts import Facts
from callkeeper.calls.record import Phase, Reason
from callkeeper.calls.rules import Outcome, RuleBook
from callkeeper.calls.rules.matching import judge, next_turn, table
from callkeeper.calls.trail import Entry, Recorded

BEGAN = datetime(2026, 11, 21, 12, tzinfo=UTC)
Known = Mapping[str, str | bool | int | None]
"""Facts by name."""

LIVE: Known = {"allowed": True, "real_voice_id": True, "assigned": True, "candidates": 1}


def at(seconds: float) -> datetime:
    """Return an instant after the call's start."""
    return BEGAN + timedelta(seconds=seconds)


def record(
    book: RuleBook,
    moments: Sequence[Known],
    *,
    voice_id: str = "v-1",
    institution_key: str = "cu-1",
    policies: Sequence[str] = (),
) -> Recorded:
    """Return a call whose facts were these, one moment a ten seconds, as the rules decided it and the service applied it."""
    trail = [Entry(at=BEGAN, what="pushed", kind="start", event_id="ev-1")]
    done: dict[str, EffectState] = {}
    last = ""
    for now, is_change, known in _instants(book, moments):
        effects = {"enrolled": "enroll" in done, "manual": "enroll" in done, "rejected": "reject" in done}
        assigned_s = int((now - BEGAN).total_seconds())
        facts = Facts.from_dict({**LIVE, **effects, **known, "assigned_s": assigned_s}, at=now)
        verdict = judge(facts, book, institution_key)
        if verdict.fingerprint == last:
            if is_change:
                trail.append(Entry(at=now, what="facts", facts=facts.as_dict(), policies=tuple(policies)))
            continue
        last = verdict.fingerprint
        trail.append(
            Entry(
                at=now,
                what="decided",
                kind=verdict.outcome,
                asked=verdict.asked,
                rule=verdict.rule,
                rules=book.digest,
                because=verdict.because,
                validation_type=verdict.validation_type,
                forbidden=verdict.forbidden,
                facts=facts.as_dict(),
                policies=tuple(policies),
                tried=table(facts, book, institution_key),
            )
        )
        if verdict.outcome is not Outcome.HOLD:
            done[verdict.outcome] = EffectState.APPLIED
            trail.append(Entry(at=now, what="sent", kind=verdict.outcome, operator="bot"))
            trail.append(Entry(at=now, what="answered", kind=verdict.outcome, state=EffectState.APPLIED))
    trail.append(Entry(at=at(10 * len(moments)), what="settled", because=Reason.UNDECIDED, n=0, rules=book.digest))
    return Recorded(
        institution_key=institution_key,
        voice_id=voice_id,
        phase=Phase.SETTLED,
        reason=Reason.UNDECIDED,
        started_at=BEGAN,
        trail=tuple(trail),
        enroll=done.get("enroll", EffectState.NONE),
        reject=done.get("reject", EffectState.NONE),
    )


def _instants(book: RuleBook, moments: Sequence[Known]) -> Iterator[tuple[datetime, bool, Known]]:
    """Yield when a mover decides, whether the facts changed then, and the facts. Time alone may change a decision too."""
    for n, known in enumerate(moments):
        now: datetime | None = at(10 * n)
        while now is not None and now < at(10 * (n + 1)):
            yield now, now == at(10 * n), known
            now = next_turn(book, {"assigned_s": BEGAN}, now, None)

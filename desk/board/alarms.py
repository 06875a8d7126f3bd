"""What needs a human, shown on top: calls that only a person can clear up, and the works standing still. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from calls.effects import TAKEN_BACK
from calls.metrics import catalogue as figure
from calls.metrics.reading import Minute
from calls.record import ASKED, Call, EffectState
from calls.store.breakers import ACCOUNT
from calls.store.keys import CallId, institution_member, parse_member
from desk.board.board_context import BoardContext
from desk.board.rows import LiveCall, address_of, slot_of
from desk.board.states import StateName, StateTone

LATE_S: Final = 5.0
"""A due call that waits longer than this has too few workers."""

RECENT: Final = 10
"""Minutes whose counts can raise an alarm."""

UNPUSHED: Final = 2
"""New calls that nobody pushed are no news up to here."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """One thing that needs a human: what it is, what to do, where. ``since`` where it is known."""

    slot: str
    tone: StateTone
    title: str
    advice: str
    where: str = ""
    address: str | None = None
    since: datetime | None = None


def alarms_of(calls: Iterable[LiveCall], context: BoardContext, minutes: Sequence[Minute] = ()) -> list[Alarm]:
    """Return everything that needs a human, what stops all calls first."""
    told = list(_told(context))
    seen = {alarm.slot.removeprefix("a-") for alarm in told}
    held = [_held(live) for live in calls if live.state.for_person and live.slot not in seen]
    return [*_standing_still(context), *_counted(minutes), *told, *held]


def _standing_still(context: BoardContext) -> Iterator[Alarm]:
    if not context.workers.alive:
        yield Alarm(
            *("a-workers", StateTone.BAD, "No worker is alive", "Pushes are recorded, no call is moved. Start workers.")
        )
    elif context.late_s > LATE_S:
        advice = f"What is due waits {context.late_s:.0f} s. Start more workers, or look at their logs."
        yield Alarm("a-late", StateTone.WARN, "Calls are late", advice)
    for breaker in context.breakers:
        if breaker.institution_key == ACCOUNT:
            advice = f"No call is moved until it answers again: {breaker.words}."
            yield Alarm("a-service", StateTone.BAD, "The service is away", advice, since=breaker.since)
        else:
            advice = f"Its calls wait, others go on: {breaker.words}."
            slot = f"a-{slot_of(institution_member(breaker.institution_key))}"
            where = breaker.institution_key
            yield Alarm(slot, StateTone.WARN, "An institution is left alone", advice, where, since=breaker.since)


def _counted(minutes: Sequence[Minute]) -> Iterator[Alarm]:
    """Say what only counts can show; the alerts of ``deploy/prometheus`` ask the same of ten minutes."""
    recent = [minute.figures for minute in minutes[-RECENT:]]
    pushed = sum(figures.count(figure.CALLS_FOUND, by="push") for figures in recent)
    unpushed = sum(figures.count(figure.CALLS_FOUND, by="queue") for figures in recent)
    if unpushed > UNPUSHED and not pushed:
        advice = (
            f"The queue showed {unpushed} new calls in ten minutes, none was pushed. Look at the service's dashboard."
        )
        yield Alarm("a-pushes", StateTone.WARN, "No push comes", advice)
    unreplicated = sum(figures.count(figure.WRITES_UNREPLICATED) for figures in recent)
    if unreplicated:
        advice = (
            f"No replica had {unreplicated} writes of the last ten minutes within 0.1 s: a failover could lose such "
            "writes. Look at the replica and its connection."
        )
        yield Alarm("a-replica", StateTone.WARN, "The Redis replica falls behind", advice)
    if sum(figures.count(figure.LOGINS, outcome="LoginRefused") for figures in recent):
        advice = "Nothing can be asked of it: compare the service account's settings with what was handed out."
        yield Alarm("a-login", StateTone.BAD, "The service refuses our login", advice)


def _told(context: BoardContext) -> Iterator[Alarm]:
    """Say what the workers have put down for a person."""
    for member, why in context.attention.items():
        try:
            owner = parse_member(member)
        except ValueError:
            continue
        slot = f"a-{slot_of(member)}"
        title, advice = _words(why)
        if not isinstance(owner, CallId):
            yield Alarm(slot, StateTone.BAD, title, advice, owner)
            continue
        call = context.records.get(member)
        digits = f"phone ending in {call.phone_number[-4:]}" if call and call.phone_number else "a call"
        where = f"{owner.institution_key}, {digits}"
        since = _since(call) if call else None
        if call is not None and call.asked is not None and why.startswith(ASKED):
            advice = f"{call.asked.because} Nothing is sent. {advice}"
        yield Alarm(slot, StateTone.BAD, title, advice, where, address_of(*owner), since)


def _since(call: Call) -> datetime | None:
    """Return since when a person is waited for, as far as the record tells."""
    doubts = (effect.sent_at for effect in (call.enroll, call.reject) if effect.state is EffectState.UNRESOLVED)
    asked_at = call.asked.asked_at if call.asked is not None else None
    return next(doubts, None) or asked_at or call.started_at


def _words(why: str) -> tuple[str, str]:
    if why.endswith("unresolved"):
        kind = why.removesuffix(" unresolved")
        return f"{kind.capitalize()} unresolved", (
            f"Nothing proves whether the {kind} was applied. Look at the service, then say so on the call's page."
        )
    if why == TAKEN_BACK:
        advice = (
            "The voice was rejected in another call of the member. Look at both calls, then say so on the call's page."
        )
        return "Enroll taken back", advice
    if why.startswith(ASKED):
        title = f"Rule {why.removeprefix(ASKED).strip()} asks"
        return title, "Look at the call, say what you know of the caller, or that you have seen it, on its page."
    if why == "parked":
        return "Parked", "Moving it failed five times in a row: a bug. The failed job at /rq has the traceback."
    return why[:1].upper() + why[1:], "Whoever wants outcomes did not take it. Look at the receiver."


def _held(live: LiveCall) -> Alarm:
    title = "Unresolved" if live.state.name is StateName.UNRESOLVED else "Held"
    advice = f"{live.state.because[:1].upper()}{live.state.because[1:]}."
    where = (
        f"{live.call.institution_key}, phone ending in {live.last_digits}"
        if live.last_digits
        else live.call.institution_key
    )
    return Alarm(f"a-{live.slot}", StateTone.WARN, title, advice, where, live.address, live.since)

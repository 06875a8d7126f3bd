"""The alarms at the top of the board: calls that need a person, and incidents. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, NamedTuple
from urllib.parse import urlencode

from redis.asyncio import Redis

from callkeeper.calls import causes
from callkeeper.calls.call_query import NEEDS_PERSON
from callkeeper.calls.causes import IncidentKind, Weight
from callkeeper.calls.effect_ledger import EffectState
from callkeeper.calls.effect_resolution import (
    ENDLESS,
    ENROLLED_AS_ANOTHER,
    GIVEN_UP,
    HELD_BACK,
    OPTED_OUT,
    RECORD_LOST,
    REFUSED_BY_SERVICE,
    TAKEN_BACK,
    UNREAD,
)
from callkeeper.calls.incident import MERGED_FROM, Incident, named, shared_text
from callkeeper.calls.incident_detection import incidents_of
from callkeeper.calls.item_names import CallId, parse_member
from callkeeper.calls.metrics.signals import SignalReader
from callkeeper.calls.record import ASKED, Call
from callkeeper.calls.record_storage import NEWER
from callkeeper.calls.store.keys import Keys
from callkeeper.desk.board.board_context import BoardContext
from callkeeper.desk.board.rows import LiveCall, address_of, slot_of
from callkeeper.desk.board.states import StateName, StateTone


@dataclass(frozen=True, slots=True)
class Alarm:
    """One thing that needs a person: what it is, what to do, where, and since when if that is known.

    ``institution_key`` tells whose page shows it; without one, every page does. ``section`` is where
    docs/operations.md says more. ``last_error`` are the words of the last error. ``known``: who has acknowledged it.
    ``limited_advice``: what people who are limited to institutions are told instead, if ``advice`` names others.
    ``rule``: the one that asks. ``calls``: for how many calls it stands.
    """

    slot: str
    tone: StateTone
    title: str
    advice: str
    where: str = ""
    address: str | None = None
    since: datetime | None = None
    institution_key: str = ""
    section: str = ""
    last_error: str = ""
    known: str = ""
    is_incident: bool = False
    limited_advice: str = ""
    rule: str = ""
    calls: int = 1

    @property
    def is_of_call(self) -> bool:
        return not self.is_incident and self.address is not None


REDIS_AWAY: Final = Alarm(
    "a-redis",
    StateTone.BAD,
    causes.REDIS_AWAY.title,
    f"{causes.REDIS_AWAY.see} What is shown below is not updated.",
    address=f"operations#{causes.REDIS_AWAY.section}",
    is_incident=True,
)
"""Shown above the last known data while Redis is unreachable. The page of incidents cannot be shown then."""


class IncidentReader:
    """Reads the incidents that affect an institution, for the page of one of its calls."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self._signals = SignalReader(redis, keys)

    async def of(self, institution_key: str, institutions: frozenset[str] | None) -> list[Alarm]:
        """Return the alarms of an institution and those of all, causes first, for somebody limited to institutions.

        Raises:
            redis.exceptions.RedisError: Redis is away.
        """
        found = incidents_of(await self._signals.read())
        alarms = map(_of_incident, found)
        return [told(alarm, institutions) for alarm in alarms if alarm.institution_key in {"", institution_key}]


def told(alarm: Alarm, institutions: frozenset[str] | None) -> Alarm:
    """Return an alarm with the advice for its reader, who may be limited to institutions (None: to none)."""
    return alarm if institutions is None or not alarm.limited_advice else replace(alarm, advice=alarm.limited_advice)


def merged(alarms: Iterable[Alarm]) -> list[Alarm]:
    """Return the alarms of one page: incidents, then calls, what is urgent first; last what people know of.

    Equal ones are merged, because a rule may ask about many calls.
    """
    equal: dict[object, list[Alarm]] = {}
    order = sorted(alarms, key=lambda one: (bool(one.known), not one.is_incident, one.tone is not StateTone.BAD))
    for alarm in order:
        same: object = alarm.slot
        if alarm.is_of_call:
            same = (alarm.title, alarm.advice)
        elif alarm.institution_key and alarm.where == alarm.institution_key and alarm.address is None:
            same = (alarm.title, alarm.tone, alarm.section, alarm.known)
        equal.setdefault(same, []).append(alarm)
    return [together for group in equal.values() for together in _together(group)]


def _together(group: list[Alarm]) -> list[Alarm]:
    first, n = group[0], len(group)
    if n == 1 or (n < MERGED_FROM and not first.is_of_call):
        return group
    keys = sorted({alarm.institution_key for alarm in group})
    same = f"{first.section} {first.title}{first.known}{first.advice if first.is_of_call else ''}"
    one = replace(
        first,
        slot=f"a-{slot_of(same)}",
        advice=shared_text((alarm.institution_key, alarm.advice) for alarm in group),
        where=f"{len(keys)} institutions: {named(keys)}" if len(keys) > 1 else keys[0],
        since=min((alarm.since for alarm in group if alarm.since is not None), default=None),
        institution_key="",
        last_error=named({alarm.last_error for alarm in group if alarm.last_error}, most=2),
    )
    return [_of_calls(one, keys, n) if first.is_of_call else one]


def _of_calls(alarm: Alarm, keys: Sequence[str], n: int) -> Alarm:
    """Return the alarm of several calls; it leads to the list of these."""
    about = alarm.title.removesuffix(_ABOUT_ONE)
    filters = {
        "state": StateName.UNRESOLVED if alarm.section == _UNRESOLVED else NEEDS_PERSON,
        "rule": alarm.rule,
        "institution": keys[0] if len(keys) == 1 else "",
    }
    return replace(
        alarm,
        title=f"{about} about {n} calls" if about != alarm.title else f"{about}: {n} calls",
        address=f"calls?{urlencode({name: text for name, text in filters.items() if text})}",
        calls=n,
    )


_ABOUT_ONE: Final = " about a call"
_UNRESOLVED: Final = "incident-unresolved-effect"


def alarms_of(calls: Iterable[LiveCall], context: BoardContext) -> list[Alarm]:
    """Return all alarms: incidents, then calls that need a person."""
    marked = list(_marked(context))
    seen = {alarm.slot.removeprefix("a-") for alarm in marked}
    held = [_held(live) for live in calls if live.state.for_person and live.slot not in seen]
    return [*map(_of_incident, incidents_of(context.signals)), *marked, *held]


def _of_incident(incident: Incident) -> Alarm:
    key = incident.institution_key
    return Alarm(
        slot=f"a-{slot_of(f'{incident.kind} {key}')}",
        tone=StateTone.BAD if incident.weight is Weight.PAGE else StateTone.WARN,
        title=incident.title,
        advice=incident.advice,
        where=key,
        address="outcomes" if incident.kind is IncidentKind.RECEIVER_AWAY else None,
        since=incident.since,
        institution_key=key,
        section=incident.section,
        last_error=incident.last_error,
        known=incident.acknowledged.words if incident.acknowledged is not None else "",
        is_incident=True,
        limited_advice=replace(incident, detail=incident.limited_detail).advice if incident.limited_detail else "",
    )


def _marked(context: BoardContext) -> Iterator[Alarm]:
    """Return the alarms of calls that the workers have marked for a person."""
    for member, why in context.attention.items():
        try:
            owner = parse_member(member)
        except ValueError:
            continue
        slot = f"a-{slot_of(member)}"
        title, advice, section = words_of(why)
        if not isinstance(owner, CallId):
            yield Alarm(slot, StateTone.BAD, title, advice, owner, institution_key=owner, section=section)
            continue
        call = context.records.get(member)
        digits = f"phone ending in {call.names.last_digits}" if call and call.names.last_digits else "a call"
        where = f"{owner.institution_key}, {digits}"
        since, rule = _since(call) if call else None, ""
        if call is not None and call.statements.asked is not None and why.startswith(ASKED):
            advice, rule = f"{call.statements.asked.because} Nothing is sent. {advice}", call.statements.asked.rule
        yield Alarm(
            slot,
            StateTone.BAD,
            title,
            advice,
            where,
            address_of(owner),
            since,
            institution_key=owner.institution_key,
            section=section,
            rule=rule,
        )


def _since(call: Call) -> datetime | None:
    """Return since when a call waits for a person, if the record shows it."""
    doubts = (
        effect.sent_at for effect in (call.ledger.enroll, call.ledger.reject) if effect.state is EffectState.UNRESOLVED
    )
    asked_at = call.statements.asked.asked_at if call.statements.asked is not None else None
    return next(doubts, None) or asked_at or call.life.started_at


class Words(NamedTuple):
    """What an alarm says: its title, what to do, and the section of docs/operations.md that says more."""

    title: str
    advice: str
    section: str = "doctor-attention"


def words_of(why: str, *, there: str = "on the call's page") -> Words:
    """Return what is said of a reason for which a call needs a person; ``there`` is where they can say something.

    What begins with words of ours comes first: a rule's name and the service's words, which follow them, can be anything.
    """
    kind, _, rest = why.partition(" ")
    title = f"{why[:1].upper()}{why[1:].partition(':')[0]}"
    if why.startswith(ASKED):
        asks = f"Rule {why.removeprefix(ASKED).strip()} asks a person{_ABOUT_ONE}"
        return Words(asks, "On the call's page, say what you know of the caller, or that you have seen the call.")
    if rest.startswith(REFUSED_BY_SERVICE):
        reason = rest.partition(": ")[2].rstrip(".")
        advice = f"It was not applied: {reason}. Do it at the service, or say it again {there}."
        return Words(title, advice)
    if rest == "unresolved":
        advice = f"It is not known whether the {kind} was applied. Look at the service, then say so {there}."
        return Words(title, advice, _UNRESOLVED)
    if rest == GIVEN_UP:
        return Words(title, _GIVEN_UP.format(there=there))
    if rest == f"not carried out: {RECORD_LOST}":
        advice = f"Somebody may have rejected the voice. Look at the service; if nobody has, say it again {there}."
        return Words(title, advice)
    if rest == f"not carried out: {HELD_BACK}":
        advice = "A person distrusted the caller. The call's story says why nothing was sent. If it still holds, say so"
        return Words(title, f"{advice} once more {there}, else that you have seen it.")
    if why == TAKEN_BACK:
        advice = (
            "The member's voice was rejected in another call. Look at both calls, then confirm it on the call's page."
        )
        return Words(title, advice)
    if why == ENROLLED_AS_ANOTHER:
        advice = (
            "Somebody has changed the call's member after the enroll, or said that the caller is another one. Find out who "
            "called, have the voiceprint removed if it is not the member's, then confirm it on the call's page."
        )
        return Words("Enrolled as another member", advice)
    if why == OPTED_OUT:
        advice = "The enroll stays in force all the same. Ask the service's operator to remove the voiceprint, then say"
        return Words(title, f"{advice} {there} that you have seen it.")
    if why == UNREAD:
        advice = (
            "Nothing is checked, enrolled or rejected for the call: look at it at the service, reject the voice there if "
            "you must, and tell the service's operator."
        )
        return Words("Details cannot be read", advice)
    if why == ENDLESS:
        advice = (
            "The queue lists it for more than four hours. It gets no checks, and is read every ten minutes. If nobody is on "
            "the line, tell the service's operator."
        )
        return Words("Call never ends", advice)
    if why == NEWER:
        remedy = why.partition(": ")[2]
        return Words(title, f"{remedy.capitalize()}. This release leaves the call alone.")
    if why == "parked":
        advice = "Handling it failed five times in a row: this is a bug. The failed job at /rq has the traceback."
        return Words(title, advice)
    if why.startswith(("not archived", "outcomes not sent")):
        section = "incident-archive-away" if why.startswith("not archived") else "doctor-outcomes"
        return Words(why[:1].upper() + why[1:], "It failed five times in a row: this is a bug, so report it.", section)
    return Words(
        why[:1].upper() + why[1:],
        "The receiver of outcomes did not accept it. Check the receiver.",
        "doctor-outcomes",
    )


_GIVEN_UP: Final = (
    "It would take back an enroll of the member that came later. Find out who called; then say it again {there}, or that "
    "you have seen it."
)


def _held(live: LiveCall) -> Alarm:
    title = "Unresolved" if live.state.name is StateName.UNRESOLVED else "Held"
    advice = f"{live.state.because[:1].upper()}{live.state.because[1:]}."
    where = (
        f"{live.call.institution_key}, phone ending in {live.last_digits}"
        if live.last_digits
        else live.call.institution_key
    )
    return Alarm(
        f"a-{live.slot}",
        StateTone.WARN,
        title,
        advice,
        where,
        live.address,
        live.since,
        institution_key=live.call.institution_key,
        section="doctor-attention",
    )

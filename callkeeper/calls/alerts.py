"""Alerts: which messages are sent about incidents, when, and when they are over. Pure functions.

`incidents` and the attention list say what is wrong. This module decides who is told: each target once when a
problem has lasted a while, again if it lasts for hours or has grown, and once when it is over. The caller stores what
was sent.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec

from callkeeper.calls.causes import CAUSES, FIRES_AFTER, IncidentKind, Weight
from callkeeper.calls.effect_resolution import without_service_words
from callkeeper.calls.incident import Incident, merged

ENDS_AFTER: Final = timedelta(seconds=10)
"""A problem must be gone for this long before its end is reported, because it may come back."""

REPEATED_AFTER: Final = timedelta(hours=4)
"""A lasting problem is reported again after this time."""

GROWN_AFTER: Final = timedelta(minutes=5)
"""If more items need a person, or there are institutions or faults of which nobody was told, that is told after this
time."""

MOST_AT_ONCE: Final = 10
"""Messages to one target at a time. The rest follow with the next look."""

RUNBOOK: Final = "board/operations"


class Alert(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One problem. ``size`` shows whether it has grown: the number of items that need a person, or of institutions.

    ``institutions``: those that have the same problem, if they are many. ``is_acknowledged``: nobody is told of it now.
    ``began_at``: when the problem began, if that is known. ``parts``: the faults that it is made of, if there are several.
    """

    key: str
    title: str
    advice: str
    weight: Weight
    section: str
    institution_key: str = ""
    size: int = 1
    institutions: tuple[str, ...] = ()
    is_acknowledged: bool = False
    began_at: datetime | None = None
    told_after_s: float = FIRES_AFTER.total_seconds()
    parts: tuple[str, ...] = ()


class AlertTold(msgspec.Struct, frozen=True):
    """When a target was last told, the size then, of which institutions if they were many, and of which faults."""

    at: datetime
    size: int = 1
    institutions: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()

    def lacks(self, alert: Alert) -> bool:
        """Tell whether an alert has grown since: by an institution that was not told, or by a number."""
        return bool(set(alert.institutions) - {*self.institutions}) if self.institutions else alert.size > self.size

    def left_of(self, alert: Alert) -> "AlertTold":
        """Return what is left of it: what is over is told when it comes again."""
        parts = tuple(part for part in self.parts if part in alert.parts)
        return msgspec.structs.replace(self, size=min(self.size, alert.size), parts=parts)


class OpenAlert(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An alert that lasts or has just ended: since when it is watched, and who was told.

    ``gone_at``: when it was first absent. ``is_hidden``: a cause hides it, so nobody can tell whether it is over.
    ``parts``: since when each of its faults is watched.
    """

    alert: Alert
    since: datetime
    gone_at: datetime | None = None
    is_hidden: bool = False
    told: dict[str, AlertTold] = {}
    parts: dict[str, datetime] = {}

    def has_grown(self, sent: AlertTold, now: datetime) -> bool:
        """Tell whether a target lacks an institution, an item, or a fault that has lasted."""
        lasting = {part for part, at in self.parts.items() if now - at >= timedelta(seconds=self.alert.told_after_s)}
        return sent.lacks(self.alert) or bool(lasting - {*sent.parts})

    @property
    def began_at(self) -> datetime:
        """Return when the problem began, as the board and the doctor say it."""
        return min(self.since, self.alert.began_at or self.since)


class AlertTone(StrEnum):
    """The kind of a message, in the words of the notification library."""

    FAILURE = "failure"
    WARNING = "warning"
    SUCCESS = "success"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Target:
    """A recipient, named by its place in the settings. Some want only pages."""

    name: str
    is_page_only: bool = False

    def wants(self, alert: Alert) -> bool:
        return alert.weight is Weight.PAGE or not self.is_page_only


@dataclass(frozen=True, slots=True)
class AlertMessage:
    """A message to one target about one alert."""

    target: str
    key: str
    is_over: bool
    tone: AlertTone
    title: str
    body: str


def alerts_of(incidents: Iterable[Incident], attention: Mapping[str, str]) -> list[Alert]:
    """Return what is wrong. ``attention``: the reason why each member needs a person."""
    incidents = list(incidents)
    found = []
    for is_acknowledged in (False, True):
        same = [replace(one, acknowledged=None) for one in incidents if bool(one.acknowledged) is is_acknowledged]
        found += [_of_incident(one, is_acknowledged) for one in merged(same)]
    if attention:
        reasons = Counter(map(without_service_words, attention.values()))
        listed = ", ".join(f"{count} {why}" for why, count in sorted(reasons.items())[:10])
        found.append(
            Alert(
                key="attention",
                title=f"{len(attention)} items need a person" if len(attention) > 1 else "One item needs a person",
                advice=f"{listed}. The board and callkeeper calls list show them.",
                weight=Weight.TICKET,
                section="doctor-attention",
                size=len(attention),
            )
        )
    return found


def _of_incident(incident: Incident, is_acknowledged: bool) -> Alert:
    many = f"{'* acknowledged' if is_acknowledged else '*'} {incident.title}"  # several of one kind may be merged
    where = many if incident.institutions else incident.institution_key
    key = f"{incident.kind}:{where}" if where else str(incident.kind)
    return Alert(
        key=key,
        title=incident.title,
        advice=f"{incident.advice} Last error: {incident.last_error}." if incident.last_error else incident.advice,
        weight=incident.weight,
        section=incident.section,
        institution_key=incident.institution_key,
        size=max(1, len(incident.institutions)),
        institutions=incident.institutions,
        is_acknowledged=is_acknowledged,
        began_at=incident.since,
        told_after_s=CAUSES[incident.kind].told_after.total_seconds(),
        parts=incident.parts,
    )


def watched(
    before: Mapping[str, OpenAlert],
    alerts: Iterable[Alert],
    now: datetime,
    *,
    hidden: Collection[IncidentKind] = (),
) -> dict[str, OpenAlert]:
    """Return the alerts that last, and those that have ended and whose end must be reported.

    ``hidden`` are the kinds that a cause hides. They stay as they were, also if the cause comes and goes. If the clock
    went back, instants that are now in the future are set to now.
    """
    before = {key: _until(now, known) for key, known in before.items()}
    alerts = list(alerts)
    present = {alert.key: alert for alert in alerts}
    after = {}
    for key, alert in present.items():
        known = before.get(key) or _group_of(alert, before)
        since, sent = (known.since, known.told) if known else (now, {})
        if known is not None and known.gone_at is not None and now - known.gone_at >= ENDS_AFTER:
            since = now  # it comes again, and is only known because some target could not be told of the end
        parts = {part: known.parts.get(part, now) if known else now for part in alert.parts}
        has_lapsed = known is not None and known.alert.is_acknowledged and not alert.is_acknowledged
        if known is not None and has_lapsed:  # a further fault is told when it has lasted
            at = now - (REPEATED_AFTER if parts.keys() <= known.parts.keys() else GROWN_AFTER)
            sent = {name: msgspec.structs.replace(each, at=at) for name, each in sent.items()}
        sent = {name: each.left_of(alert) for name, each in sent.items()}
        after[key] = OpenAlert(alert=alert, since=since, told=sent, parts=parts)
    lasting = {part for alert in alerts for part in _parts(alert)}
    for key, known in before.items():
        if key in present or lasting & _parts(known.alert):
            continue
        if key.partition(":")[0] in hidden:
            after[key] = msgspec.structs.replace(known, is_hidden=True)
        elif known.told:
            after[key] = msgspec.structs.replace(known, gone_at=known.gone_at or now, is_hidden=False)
    return after


def _parts(alert: Alert) -> set[str]:
    """Return the keys that an alert would have for each of its institutions alone."""
    kind = alert.key.partition(":")[0]
    return {f"{kind}:{institution}" for institution in alert.institutions} or {alert.key}


def _group_of(alert: Alert, before: Mapping[str, OpenAlert]) -> OpenAlert | None:
    """Return the alert of many institutions that this one was a part of: its targets were told."""
    return next((known for known in before.values() if _parts(alert) <= _parts(known.alert)), None)


def _until(now: datetime, known: OpenAlert) -> OpenAlert:
    sent = {name: msgspec.structs.replace(each, at=min(each.at, now)) for name, each in known.told.items()}
    gone_at = min(known.gone_at, now) if known.gone_at else None
    return msgspec.structs.replace(known, since=min(known.since, now), gone_at=gone_at, told=sent)


def messages(
    open_alerts: Mapping[str, OpenAlert], targets: Iterable[Target], now: datetime, *, place: str
) -> Iterator[AlertMessage]:
    """Yield what each target must be told now, causes first, at most ``MOST_AT_ONCE`` messages each.

    ``place`` is the address of the web process, or a name of the installation.
    """
    for target in targets:
        count = 0
        for key, open_alert in open_alerts.items():
            is_over = open_alert.gone_at is not None
            if open_alert.is_hidden:
                continue
            if count < MOST_AT_ONCE and (
                _has_ended(open_alert, target, now) if is_over else _is_due(open_alert, target, now)
            ):
                count += 1
                yield (_over if is_over else _firing)(target, key, open_alert, place)


def _is_due(open_alert: OpenAlert, target: Target, now: datetime) -> bool:
    if open_alert.alert.is_acknowledged or not target.wants(open_alert.alert):
        return False
    if now - open_alert.since < timedelta(seconds=open_alert.alert.told_after_s):
        return False
    sent = open_alert.told.get(target.name)
    if sent is None:
        return True
    has_grown = open_alert.has_grown(sent, now) and now - sent.at >= GROWN_AFTER
    return has_grown or now - sent.at >= REPEATED_AFTER


def _has_ended(open_alert: OpenAlert, target: Target, now: datetime) -> bool:
    return target.name in open_alert.told and open_alert.gone_at is not None and now - open_alert.gone_at >= ENDS_AFTER


def _firing(target: Target, key: str, open_alert: OpenAlert, place: str) -> AlertMessage:
    alert = open_alert.alert
    tone = AlertTone.FAILURE if alert.weight is Weight.PAGE else AlertTone.WARNING
    lines = [alert.advice, _where(alert), f"Since {open_alert.began_at:%Y-%m-%d %H:%M:%S} UTC.", _link(place, alert)]
    return AlertMessage(target.name, key, False, tone, f"callkeeper: {alert.title}", _text(lines))


def _over(target: Target, key: str, open_alert: OpenAlert, place: str) -> AlertMessage:
    alert, until = open_alert.alert, open_alert.gone_at or open_alert.since
    minutes = max(1, round((until - open_alert.began_at).total_seconds() / 60))
    lasted = f"It lasted {minutes} {'minute' if minutes == 1 else 'minutes'}."
    lines = [_where(alert), lasted, _link(place, alert)]
    return AlertMessage(target.name, key, True, AlertTone.SUCCESS, f"callkeeper: over: {alert.title}", _text(lines))


def _where(alert: Alert) -> str:
    return f"Institution: {alert.institution_key}." if alert.institution_key else ""


def _link(place: str, alert: Alert) -> str:
    return f"{place}/{RUNBOOK}#{alert.section}" if "://" in place else f"On {place}; see /{RUNBOOK}#{alert.section}"


def _text(lines: Iterable[str]) -> str:
    return "\n".join(line for line in lines if line)


def note_taken(open_alerts: dict[str, OpenAlert], message: AlertMessage, now: datetime) -> None:
    """Record that a target accepted a message. An alert whose end was reported to all its targets is forgotten.

    If the process dies before this is stored, the message is sent again.
    """
    open_alert = open_alerts[message.key]
    sent = {name: each for name, each in open_alert.told.items() if name != message.target}
    if not message.is_over:
        sent[message.target] = AlertTold(
            now, open_alert.alert.size, open_alert.alert.institutions, open_alert.alert.parts
        )
    if message.is_over and not sent:
        del open_alerts[message.key]
    else:
        open_alerts[message.key] = msgspec.structs.replace(open_alert, told=sent)

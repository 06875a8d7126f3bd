"""The institutions as one table: the state of each, its live calls, what needs a person, how late it is. Pure.

Those with trouble come first, then those with the most live calls. A large installation shows the first, and folds the
others and those without calls and without trouble.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from callkeeper.calls.institutions import NOT_ACTIVE, UNKNOWN
from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.metrics.snapshot import Minute
from callkeeper.calls.pause import EVERYWHERE
from callkeeper.desk.board.alarms import Alarm
from callkeeper.desk.board.board_context import BoardContext
from callkeeper.desk.board.groups import Group
from callkeeper.desk.board.states import StateTone

LATE_FROM_S: Final = 2.0
"""How long a due call or listing waits before it counts as late, in seconds: workers take what is due within one."""

BADLY_LATE_FROM_S: Final = 10
"""How long it waits before that is the institution's state, in seconds."""


@dataclass(frozen=True, slots=True)
class InstitutionState:
    """One word for an institution, with its tone and shape. ``is_acknowledged``: it is trouble that somebody knows of."""

    word: str
    tone: StateTone
    shape: str
    is_acknowledged: bool = False


_OBSTACLES: Final = {
    NOT_ACTIVE: InstitutionState("Not active", StateTone.IDLE, "dash"),
    "no_voice_auth": InstitutionState("No voice authentication", StateTone.IDLE, "dash"),
    "test_mode": InstitutionState("Test mode", StateTone.IDLE, "dash"),
    UNKNOWN: InstitutionState("Standing unknown", StateTone.WARN, "question"),
}
_CALLS_WAIT: Final = {
    tone: InstitutionState("Needs a person", tone, shape)
    for tone, shape in ((StateTone.BAD, "triangle"), (StateTone.WARN, "bars"))
}
_PAUSED: Final = InstitutionState("Paused", StateTone.WARN, "bars")
_WORKING: Final = InstitutionState("Working", StateTone.BUSY, "half")
_LATE: Final = InstitutionState("Late", StateTone.WARN, "question")
_QUIET: Final = InstitutionState("No calls", StateTone.IDLE, "ring")


@dataclass(frozen=True, slots=True)
class InstitutionRow:
    """One line of the table.

    ``waiting``: how many calls need a person. ``late_s``: how long the call or listing that is due the longest has waited.
    ``refused``: requests and listings that the service has refused within the hour. ``slot`` names its place in the page.
    """

    slot: str
    key: str
    name: str
    address: str
    state: InstitutionState
    live: int
    waiting: int
    late_s: int
    refused: int

    @property
    def is_quiet(self) -> bool:
        """Tell whether nobody needs to look at it."""
        return not (self.live or self.has_trouble)

    @property
    def is_badly_late(self) -> bool:
        return self.late_s >= BADLY_LATE_FROM_S

    @property
    def has_trouble(self) -> bool:
        is_seen = self.state.is_acknowledged or self.state.tone in {StateTone.BAD, StateTone.WARN}
        return is_seen or bool(self.waiting or self.late_s or self.refused)


def institution_rows(
    groups: Iterable[Group],
    context: BoardContext,
    alarms: Sequence[Alarm],
    refused: Mapping[str, int],
    ranks: Mapping[str, int],
) -> list[InstitutionRow]:
    """Return the lines in the order of the table.

    ``ranks``: live calls by institution, as of a moment ago: the order follows these, so that lines do not jump.
    """
    waiting: Counter[str] = Counter()
    trouble: dict[str, Alarm] = {}
    for alarm in alarms:
        key, worst = alarm.institution_key, trouble.get(alarm.institution_key)
        if worst is None or _is_worse(alarm, worst):
            trouble[key] = alarm
        waiting[key] += not (alarm.is_incident or alarm.known)
    rows = [
        InstitutionRow(
            slot=f"i-{sha256(group.key.encode()).hexdigest()[:10]}",
            key=group.key,
            name=group.name,
            address=group.address,
            state=_state(group, context, trouble.get(group.key)),
            live=len(group.calls),
            waiting=waiting[group.key],
            late_s=_late_s(context.late_s.get(group.key, 0.0)),
            refused=refused.get(group.key, 0),
        )
        for group in groups
    ]
    return sorted(rows, key=lambda row: (*_weight(row), -ranks.get(row.key, 0), row.name.casefold(), row.key))


def _is_worse(one: Alarm, other: Alarm) -> bool:
    """Tell whether an alarm comes before another: one that nobody knows of does, an urgent one, an incident."""
    return _rank(one) < _rank(other)


def _rank(alarm: Alarm) -> tuple[bool, bool, bool]:
    return bool(alarm.known), alarm.tone is not StateTone.BAD, not alarm.is_incident


def _weight(row: InstitutionRow) -> tuple[bool, bool, bool, bool]:
    """Return what sorts before the number of calls: False comes first."""
    tone = row.state.tone
    return tone is not StateTone.BAD, not row.waiting, tone is not StateTone.WARN, not row.live


def _state(group: Group, context: BoardContext, trouble: Alarm | None) -> InstitutionState:
    if trouble is not None and not trouble.is_incident:
        return _CALLS_WAIT[trouble.tone if trouble.tone in _CALLS_WAIT else StateTone.WARN]
    if trouble is not None and not trouble.known:
        return InstitutionState(trouble.title, trouble.tone, "triangle" if trouble.tone is StateTone.BAD else "bars")
    if _late_s(context.late_s.get(group.key, 0.0)) >= BADLY_LATE_FROM_S:
        return _LATE
    if trouble is not None:
        return InstitutionState(f"Acknowledged: {trouble.title}", StateTone.IDLE, "bars", is_acknowledged=True)
    if {group.key, EVERYWHERE} & context.pauses.by_institution.keys():
        return _PAUSED
    if group.obstacle_name:
        return _OBSTACLES.get(group.obstacle_name, _OBSTACLES[NOT_ACTIVE])
    return _WORKING if group.calls else _QUIET


def _late_s(late_s: float) -> int:
    """Return a lag in seconds; a long one in steps, so that a backlog does not change every line twice a second."""
    if late_s < LATE_FROM_S:
        return 0
    return int(late_s) if late_s < 10 else int(late_s) // 5 * 5


def refused_by(minutes: Iterable[Minute]) -> Counter[str]:
    """Return how often the service has refused requests and listings, by institution."""
    counts: Counter[str] = Counter()
    for minute in minutes:
        counts.update(minute.figures.by(figure.ACCESS_REFUSED, "institution"))
        counts.update(minute.figures.by(figure.LISTINGS, "institution", outcome="refused"))
    return counts

"""Everything that the board shows at one moment: institutions with their calls, alarms, tiles. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from callkeeper.calls.causes import IncidentKind
from callkeeper.calls.incident_detection import incidents_of
from callkeeper.calls.institutions import KnownInstitutions
from callkeeper.calls.metrics.snapshot import Minute
from callkeeper.desk.board.alarms import Alarm, alarms_of
from callkeeper.desk.board.board_context import BoardContext
from callkeeper.desk.board.groups import Group, groups_of, shares_of
from callkeeper.desk.board.hour import Tile, tiles_of, with_live
from callkeeper.desk.board.institution_table import InstitutionRow, institution_rows, refused_by
from callkeeper.desk.board.rows import LiveCall
from callkeeper.desk.board.states import StateName, StateStyle


@dataclass(frozen=True, slots=True)
class ServiceWord:
    """The state of the service: a word, and a detail."""

    word: str
    more: str = ""

    @property
    def is_bad(self) -> bool:
        return self.word != "answers" or bool(self.more)


_SERVICE: Final = {
    IncidentKind.LOGIN_REFUSED: ServiceWord("refuses our login"),
    IncidentKind.SERVICE_AWAY: ServiceWord("away", ", tried every 3 s"),
    IncidentKind.RATE_LIMITED: ServiceWord("limits our requests"),
    IncidentKind.SERVICE_SLOW: ServiceWord("slow"),
    IncidentKind.INSTITUTION_FAILS: ServiceWord("answers", ", not for all institutions"),
}


@dataclass(frozen=True, slots=True)
class Frame:
    """What the board shows at one moment. ``n`` counts up. ``is_stale``: Redis did not answer, so this is older data."""

    n: int
    context: BoardContext
    groups: Sequence[Group]
    alarms: Sequence[Alarm]
    institutions: Sequence[InstitutionRow]
    tiles: Sequence[Tile]
    is_stale: bool = False

    @property
    def live(self) -> int:
        return sum(len(group.calls) for group in self.groups)

    @property
    def shares(self) -> list[tuple[StateName, StateStyle, int]]:
        """Return how many live calls are in each state, good ones first; states without calls are left out."""
        return shares_of(live for group in self.groups for live in group.calls)

    @property
    def releases(self) -> list[str]:
        return sorted({process.version or "older" for process in self.context.signals.processes})

    @property
    def service(self) -> "ServiceWord":
        kinds = {incident.kind for incident in incidents_of(self.context.signals)}
        return next((words for kind, words in _SERVICE.items() if kind in kinds), ServiceWord("answers"))

    @property
    def known(self) -> KnownInstitutions:
        """Return the institutions on the board, with their live calls."""
        return KnownInstitutions(
            {group.key: group.name for group in self.groups},
            {group.key: len(group.calls) for group in self.groups},
            is_list_stored=bool(self.context.standings),
        )


@dataclass(frozen=True, slots=True)
class Hour:
    """What the minutes of the last hour come to. It is computed once for each reading of them.

    ``live``: how many calls each institution had at that moment.
    """

    minutes: Sequence[Minute] = ()
    tiles: Sequence[Tile] = ()
    refused: Mapping[str, int] = field(default_factory=dict)
    live: Mapping[str, int] = field(default_factory=dict)


def hour_of(minutes: Sequence[Minute], calls: Sequence[LiveCall]) -> Hour:
    """Return what an hour comes to."""
    live = Counter(live.call.institution_key for live in calls)
    return Hour(minutes, tiles_of(minutes, len(calls)), refused_by(minutes), live)


def frame_of(n: int, calls: Sequence[LiveCall], context: BoardContext, hour: Hour) -> Frame:
    """Make a frame."""
    groups, alarms = groups_of(calls, context), alarms_of(calls, context)
    institutions = institution_rows(groups, context, alarms, hour.refused, hour.live)
    return Frame(n, context, groups, alarms, institutions, with_live(hour.tiles, len(calls)))

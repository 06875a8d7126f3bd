"""Everything that the board shows at one moment: calls by institution, alarms, tiles. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final
from urllib.parse import quote

from calls.incidents import IncidentKind, incidents_of
from calls.institutions import KnownInstitutions, Standing
from desk.board.alarms import Alarm, alarms_of
from desk.board.board_context import BoardContext
from desk.board.hour import Tile, tiles_of
from desk.board.rows import CallRow, LiveCall
from desk.board.states import STATE_STYLES, StateName, StateStyle

OBSTACLES: Final = {
    "not_active": "not active: nothing is done for its calls",
    "no_voice_auth": "without voice authentication: nothing is done for its calls",
    "test_mode": "in test mode: nothing is done for its calls",
}
_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Group:
    """One institution's live calls, the newest first. ``slot`` names its place in the page; ``pause`` is its own."""

    slot: str
    key: str
    name: str
    address: str
    obstacle: str
    pause: str
    calls: tuple[LiveCall, ...]

    @property
    def shares(self) -> list[tuple[StateStyle, int]]:
        """Return how many calls are in each state, good ones first; states without calls are left out."""
        counts: Counter[StateName] = Counter(live.state.name for live in self.calls)
        found = [(STATE_STYLES[state], count) for state, count in counts.items()]
        return sorted(found, key=lambda pair: pair[0].rank)


def groups_of(calls: Iterable[LiveCall], context: BoardContext) -> list[Group]:
    """Return the institutions that we know, in the order of their keys, each with its calls."""
    by_key: dict[str, list[LiveCall]] = defaultdict(list)
    for live in calls:
        by_key[live.call.institution_key].append(live)
    return [_group(key, by_key.get(key, []), context) for key in sorted({*by_key, *context.standings})]


def _group(key: str, calls: list[LiveCall], context: BoardContext) -> Group:
    standing = context.standings.get(key, Standing(key=key))
    pause = context.pauses.by_institution.get(key)
    obstacle = OBSTACLES.get(standing.obstacle or "", "") if key in context.standings else ""
    return Group(
        slot=group_slot(key),
        key=key,
        name=standing.name or key,
        address=f"institutions/{quote(key, safe='')}",
        obstacle=obstacle,
        pause=pause.words if pause else "",
        calls=tuple(sorted(calls, key=lambda live: (live.since or _LONG_AGO, live.slot), reverse=True)),
    )


def group_slot(key: str) -> str:
    """Return the name of an institution's place in the page."""
    return f"g-{sha256(key.encode()).hexdigest()[:12]}"


@dataclass(frozen=True, slots=True)
class ServiceWord:
    """How the service is: a word, and what follows it."""

    word: str
    more: str = ""

    @property
    def is_bad(self) -> bool:
        """Tell whether it is not as it should be."""
        return self.word != "answers" or bool(self.more)


_SERVICE: Final = {
    IncidentKind.LOGIN_REFUSED: ServiceWord("refuses our login"),
    IncidentKind.SERVICE_AWAY: ServiceWord("away", ", tried every 3 s"),
    IncidentKind.RATE_LIMITED: ServiceWord("limits our requests"),
    IncidentKind.SERVICE_SLOW: ServiceWord("slow"),
    IncidentKind.INSTITUTION_AWAY: ServiceWord("answers", ", not for all institutions"),
    IncidentKind.INSTITUTION_REFUSED: ServiceWord("answers", ", not for all institutions"),
    IncidentKind.LISTING_REFUSED: ServiceWord("answers", ", not for all institutions"),
}


@dataclass(frozen=True, slots=True)
class Frame:
    """One moment. ``n`` counts up; ``is_stale``: Redis did not answer, this is what was known before."""

    n: int
    context: BoardContext
    groups: Sequence[Group]
    alarms: Sequence[Alarm]
    settled: Sequence[CallRow]
    tiles: Sequence[Tile]
    is_stale: bool = False

    @property
    def live(self) -> int:
        """Count the live calls."""
        return sum(len(group.calls) for group in self.groups)

    @property
    def releases(self) -> list[str]:
        """Return the releases of callkeeper that run."""
        return sorted({process.version or "older" for process in self.context.signals.processes})

    @property
    def service(self) -> "ServiceWord":
        """Say in a word how the service is."""
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


def frame_of(n: int, calls: Sequence[LiveCall], context: BoardContext, settled: Sequence[CallRow]) -> Frame:
    """Put a moment together."""
    return Frame(
        n,
        context,
        groups_of(calls, context),
        alarms_of(calls, context),
        settled,
        tiles_of(context.hour, len(calls)),
    )

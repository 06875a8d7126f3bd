"""Everything that the board shows at one moment: calls by institution, alarms, tiles. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final
from urllib.parse import quote

from callkeeper.calls.incident import IncidentKind
from callkeeper.calls.incidents import incidents_of
from callkeeper.calls.institutions import UNKNOWN, KnownInstitutions
from callkeeper.calls.pause import Pause
from callkeeper.calls.store.last_listing import Standing
from callkeeper.desk.board.alarms import Alarm, alarms_of
from callkeeper.desk.board.board_context import BoardContext
from callkeeper.desk.board.hour import Tile, tiles_of
from callkeeper.desk.board.rows import CallRow, LiveCall
from callkeeper.desk.board.states import STATE_STYLES, StateName, StateStyle

OBSTACLES: Final = {
    "not_active": "not active: nothing is done for its calls",
    "no_voice_auth": "without voice authentication: nothing is done for its calls",
    "test_mode": "in test mode: nothing is done for its calls",
    UNKNOWN: "its standing at the service cannot be read: nothing is done for its calls (callkeeper doctor says why)",
}
_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Group:
    """One institution's live calls: first those that somebody should look at, then the newest, and decided ones last.

    ``slot`` names its place in the page; ``pause`` is its own.
    """

    slot: str
    key: str
    name: str
    address: str
    obstacle: str
    pause: str
    calls: tuple[LiveCall, ...]

    @property
    def decided(self) -> int:
        return sum(live.state.is_decided for live in self.calls)

    @property
    def shares(self) -> list[tuple[StateStyle, int]]:
        """Return how many calls are in each state, good ones first; states without calls are left out."""
        counts: Counter[StateName] = Counter(live.state.name for live in self.calls)
        found = [(STATE_STYLES[state], count) for state, count in counts.items()]
        return sorted(found, key=lambda pair: pair[0].rank)


def groups_of(calls: Iterable[LiveCall], context: BoardContext) -> list[Group]:
    """Return the known institutions with their calls, in the order of their keys."""
    by_key: dict[str, list[LiveCall]] = defaultdict(list)
    for live in calls:
        by_key[live.call.institution_key].append(live)
    standings, pauses = context.standings, context.pauses.by_institution
    return [
        group_of(key, by_key.get(key, []), standings.get(key), pauses.get(key)) for key in sorted({*by_key, *standings})
    ]


def group_of(key: str, calls: Iterable[LiveCall], standing: Standing | None, pause: Pause | None) -> Group:
    """Return one institution with its calls; ``standing`` is its status at the service, if known."""
    ordered = tuple(sorted(calls, key=_precedence, reverse=True))
    is_unknown = standing is None and any(live.call.last_claim.standing == UNKNOWN for live in ordered)
    obstacle = standing.obstacle if standing else UNKNOWN if is_unknown else None
    return Group(
        slot=group_slot(key),
        key=key,
        name=(standing.name if standing else None) or key,
        address=f"institutions/{quote(key, safe='')}",
        obstacle=OBSTACLES.get(obstacle or "", ""),
        pause=pause.words if pause else "",
        calls=ordered,
    )


def _precedence(live: LiveCall) -> tuple[bool, bool, datetime, str]:
    return live.state.is_urgent, not live.state.is_decided, live.since or _LONG_AGO, live.slot


def group_slot(key: str) -> str:
    """Return the name of an institution's place in the page."""
    return f"g-{sha256(key.encode()).hexdigest()[:12]}"


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
    IncidentKind.INSTITUTION_AWAY: ServiceWord("answers", ", not for all institutions"),
    IncidentKind.INSTITUTION_REFUSED: ServiceWord("answers", ", not for all institutions"),
    IncidentKind.LISTING_REFUSED: ServiceWord("answers", ", not for all institutions"),
    IncidentKind.STANDING_UNCONFIRMED: ServiceWord("answers", ", not for all institutions"),
}


@dataclass(frozen=True, slots=True)
class Frame:
    """What the board shows at one moment. ``n`` counts up. ``is_stale``: Redis did not answer, so this is older data."""

    n: int
    context: BoardContext
    groups: Sequence[Group]
    alarms: Sequence[Alarm]
    settled: Sequence[CallRow]
    tiles: Sequence[Tile]
    is_stale: bool = False

    @property
    def live(self) -> int:
        return sum(len(group.calls) for group in self.groups)

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


def frame_of(n: int, calls: Sequence[LiveCall], context: BoardContext, settled: Sequence[CallRow]) -> Frame:
    """Make a frame."""
    return Frame(
        n,
        context,
        groups_of(calls, context),
        alarms_of(calls, context),
        settled,
        tiles_of(context.hour, len(calls)),
    )

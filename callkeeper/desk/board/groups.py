"""The live calls of the board by institution. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final
from urllib.parse import quote

from callkeeper.calls.institutions import UNKNOWN
from callkeeper.calls.pause import Pause
from callkeeper.calls.store.last_listing import Standing
from callkeeper.desk.board.board_context import BoardContext
from callkeeper.desk.board.rows import LiveCall
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

    ``slot`` names its place in the page; ``pause`` is its own. ``obstacle`` says in words why nothing is done for its
    calls, ``obstacle_name`` in one of the names of `Standing.obstacle`.
    """

    slot: str
    key: str
    name: str
    address: str
    obstacle: str
    pause: str
    calls: tuple[LiveCall, ...]
    obstacle_name: str = ""

    @property
    def decided(self) -> int:
        return sum(live.state.is_decided for live in self.calls)

    @property
    def shares(self) -> list[tuple[StateStyle, int]]:
        """Return how many calls are in each state, good ones first; states without calls are left out."""
        return [(style, count) for _, style, count in shares_of(self.calls)]


def shares_of(calls: Iterable[LiveCall]) -> list[tuple[StateName, StateStyle, int]]:
    """Return how many calls are in each state, good ones first; states without calls are left out."""
    counts: Counter[StateName] = Counter(live.state.name for live in calls)
    found = [(state, STATE_STYLES[state], count) for state, count in counts.items()]
    return sorted(found, key=lambda each: each[1].rank)


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
    ordered = tuple(sorted(calls, key=precedence, reverse=True))
    is_unknown = standing is None and any(live.call.last_claim.standing == UNKNOWN for live in ordered)
    obstacle = standing.obstacle if standing else UNKNOWN if is_unknown else None
    return Group(
        slot=f"g-{sha256(key.encode()).hexdigest()[:12]}",
        key=key,
        name=(standing.name if standing else None) or key,
        address=f"institutions/{quote(key, safe='')}",
        obstacle=OBSTACLES.get(obstacle or "", ""),
        pause=pause.words if pause else "",
        calls=ordered,
        obstacle_name=obstacle or "",
    )


def precedence(live: LiveCall) -> tuple[bool, bool, datetime, str]:
    """Return what sorts calls: the highest is looked at first."""
    return live.state.is_urgent, not live.state.is_decided, live.since or _LONG_AGO, live.slot

"""Everything that the board knows at one moment. Pure: put together from lines, surroundings and figures."""

from collections.abc import Sequence
from dataclasses import dataclass

from calls.figures import Minute
from calls.known import KnownInstitutions
from desk.board.alarms import Alarm, alarms_of
from desk.board.groups import Group, groups_of
from desk.board.hour import tiles_of
from desk.board.live_calls import LiveCall
from desk.board.rows import Row
from desk.board.surroundings import Around
from desk.board.tiles import Tile


@dataclass(frozen=True, slots=True)
class Frame:
    """One moment. ``n`` counts up; ``is_stale``: Redis did not answer, this is what was known before."""

    n: int
    around: Around
    groups: Sequence[Group]
    alarms: Sequence[Alarm]
    settled: Sequence[Row]
    tiles: Sequence[Tile]
    is_stale: bool = False

    @property
    def live(self) -> int:
        """Count the live calls."""
        return sum(len(group.calls) for group in self.groups)

    @property
    def known(self) -> KnownInstitutions:
        """Return the institutions on the board, with their live calls."""
        return KnownInstitutions(
            {group.key: group.name for group in self.groups},
            {group.key: len(group.calls) for group in self.groups},
            is_list_stored=bool(self.around.standings),
        )


def frame_of(
    n: int, calls: Sequence[LiveCall], around: Around, minutes: Sequence[Minute], settled: Sequence[Row]
) -> Frame:
    """Put a moment together."""
    return Frame(
        n,
        around,
        groups_of(calls, around),
        alarms_of(calls, around, minutes),
        settled,
        tiles_of(minutes, len(calls)),
    )

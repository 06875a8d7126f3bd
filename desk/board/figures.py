"""The board's figures: numbers with the course of the last hour, read from what all processes count."""

from collections.abc import Sequence

from desk.board.surroundings import Around
from desk.board.tiles import Tile


class Figures:
    """Reads the tiles."""

    async def tiles(self, around: Around, live: int) -> Sequence[Tile]:
        """Return the tiles."""
        return [Tile("Live calls", str(live), "not settled yet")]

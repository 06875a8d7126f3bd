"""Plays scenarios until there are enough calls, without duplicates."""

from collections.abc import Iterable, Iterator
from itertools import chain, count
from time import monotonic
from typing import Final

import click
from msgspec.structs import replace

from tests.corpus.drawing import draw
from tests.corpus.playing import Play
from tests.corpus.scenario import Played, Scenario

BATCH: Final = 32
"""So many scenarios are played before it is looked whether there are enough calls."""


class Recording:
    """Plays scenarios until there are enough calls, and leaves out calls that met the same as an earlier one."""

    def __init__(self, wanted: int, until_s: float) -> None:
        self.wanted, self.until_s = wanted, until_s
        self.calls = self.scenarios = self.duplicates = 0
        self._met: set[str] = set()

    def of(self, play: Play, given: Iterable[Scenario]) -> Iterator[tuple[Scenario, Played]]:
        """Yield scenarios with what came of each: those that are given, then drawn ones."""
        for batch in chain([list(given)], map(_drawn, count(0, BATCH))):
            for scenario, played in play(batch):
                new = [call for call in played.calls if not self._is_known(call.experience)]
                if new:
                    self.scenarios += 1
                    self.calls += len(new)
                    yield scenario, replace(played, calls=new)
                if self.calls >= self.wanted or monotonic() > self.until_s:
                    return
            click.echo(f"\r{self.calls:,} calls, and {self.duplicates:,} duplicates ", nl=False, err=True)

    def _is_known(self, experience: str) -> bool:
        is_known = experience in self._met
        self._met.add(experience)
        self.duplicates += is_known
        return is_known


def _drawn(first: int) -> list[Scenario]:
    return [draw(seed) for seed in range(first, first + BATCH)]

"""Scrapes callkeeper's metrics in virtual time, as Prometheus would, and reports which alerts fire."""

from callkeeper.desk.metrics import read_everything
from tests.harness.virtual_time import Rig
from tests.promtool import SCRAPE_S, Scrape, firing, scrape_of_families


class Watch:
    """Scrapes a rig. Its worker writes its metrics before each scrape; in production a thread does so every second."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.rig.step_s = 1.0
        self.scrapes: list[Scrape] = []
        self.is_worker_alive = True

    @property
    def fired(self) -> dict[str, list[dict[str, str]]]:
        """Return every alert that fires now, with the labels of its series."""
        return firing(self.scrapes)

    async def run(self, seconds: float) -> None:
        """Let time pass while the worker does the work that becomes due."""
        for _ in range(int(seconds / SCRAPE_S)):
            await self.rig.run(SCRAPE_S)
            await self.scrape()

    async def stand_still(self, seconds: float) -> None:
        """Let time pass while no worker runs."""
        for _ in range(int(seconds / SCRAPE_S)):
            self.rig.stage.advance(SCRAPE_S)
            await self.scrape()

    async def scrape(self, *, fails: bool = False) -> None:
        """Scrape once."""
        if self.is_worker_alive:
            await self.rig.writer.write_async(self.rig.redis)
        else:
            await self.rig.redis.zremrangebyscore("ck:processes", "-inf", self.rig.now_ms() - SCRAPE_S * 1000)
        figures = None if fails else await read_everything(self.rig.redis, now=self.rig.clock.now)
        self.scrapes.append(scrape_of_families(None if figures is None else figures.collect()))

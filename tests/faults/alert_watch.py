"""Scrapes callkeeper's metrics in virtual time, as Prometheus would, and reports which alerts fire."""

from callkeeper.calls.metrics.redis_writer import ALIVE_S
from callkeeper.desk.prometheus_page import read_everything
from tests.harness.virtual_time import Rig
from tests.promtool import SCRAPE_S, Scrape, firing, scrape_of_families

REPORT_S = 5.0
"""How often processes report, in seconds: less than `ALIVE_S`, after which one counts as gone."""


class Watch:
    """Scrapes a rig. Its processes report every few seconds; in production a thread does so every second."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.rig.step_s = 1.0
        self.scrapes: list[Scrape] = []
        self.is_worker_alive = True
        self.is_web_alive = True

    @property
    def fired(self) -> dict[str, list[dict[str, str]]]:
        """Return every alert that fires now, with the labels of its series."""
        return firing(self.scrapes)

    async def run(self, seconds: float) -> None:
        """Let time pass while the worker does the work that becomes due."""
        for _ in range(int(seconds / SCRAPE_S)):
            for _ in range(int(SCRAPE_S / REPORT_S)):
                await self.rig.run(REPORT_S)
                await self._report()
            await self.scrape()

    async def stand_still(self, seconds: float) -> None:
        """Let time pass while no worker runs."""
        for _ in range(int(seconds / SCRAPE_S)):
            for _ in range(int(SCRAPE_S / REPORT_S)):
                self.rig.stage.advance(REPORT_S)
                await self._report()
            await self.scrape()

    async def scrape(self, *, fails: bool = False) -> None:
        """Scrape once."""
        await self._report()
        figures = None if fails else await read_everything(self.rig.redis, now=self.rig.clock.now)
        self.scrapes.append(scrape_of_families(None if figures is None else figures.collect()))

    async def _report(self) -> None:
        await self.rig.redis.zremrangebyscore("ck:2:processes", "-inf", self.rig.now_ms() - ALIVE_S * 1000)
        if self.is_web_alive:
            await self.rig.web.write_async(self.rig.redis)
        if self.is_worker_alive:
            await self.rig.writer.write_async(self.rig.redis)

"""Prometheus as our alerts know it, over a callkeeper in virtual time: scrapes, evaluates, remembers what fires."""

import re
from pathlib import Path
from typing import Any

import yaml
from prometheus_client import generate_latest

from desk.metrics import read_everything
from tests.promql.evaluation import evaluate
from tests.promql.history import History, Labels
from tests.promql.syntax import Tree, parse
from tests.rig import Rig

ROOT = Path(__file__).parents[3]
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yml"
SCRAPE_S = 15


class Alert:
    """One rule of the file, and since when each of its series has held."""

    def __init__(self, rule: dict[str, Any]) -> None:
        self.name: str = rule["alert"]
        self.expression: str = rule["expr"]
        self.tree: Tree = parse(self.expression)
        self.for_s = _seconds(rule.get("for", "0s"))
        self.severity: str = rule["labels"]["severity"]
        self.annotations: dict[str, str] = rule["annotations"]
        self._since_s: dict[Labels, float] = {}

    def firing(self, history: History, now_s: float) -> list[dict[str, str]]:
        """Return the labels of the series for which it has held long enough; to be asked at every scrape."""
        value = evaluate(self.tree, history, now_s)
        assert isinstance(value, dict), "an alert is about series"
        self._since_s = {labels: self._since_s.get(labels, now_s) for labels in value}
        return [dict(labels) for labels, since_s in self._since_s.items() if now_s - since_s >= self.for_s]


def alerts() -> list[Alert]:
    """Read the rules that we deliver."""
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return [Alert(rule) for group in groups for rule in group["rules"]]


class Watch:
    """Watches a rig. The worker of the rig reports with every scrape, as its thread would every second."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.rig.step_s = 1.0
        self.history = History()
        self.alerts = alerts()
        self.is_worker_alive = True
        self.fired: dict[str, list[dict[str, str]]] = {}
        """Every alert that fires now, with the labels of its series."""
        self.steps: list[tuple[float, dict[str, list[dict[str, str]]]]] = []
        self._began = rig.clock.now

    async def run(self, seconds: float) -> None:
        """Let time pass, with everything that falls due in it."""
        for _ in range(int(seconds / SCRAPE_S)):
            await self.rig.run(SCRAPE_S)
            await self.scrape()

    async def stand_still(self, seconds: float) -> None:
        """Let time pass in which no worker does anything."""
        for _ in range(int(seconds / SCRAPE_S)):
            self.rig.stage.advance(SCRAPE_S)
            await self.scrape()

    async def scrape(self, *, fails: bool = False) -> None:
        """Scrape once and evaluate every alert."""
        if self.is_worker_alive:
            await self.rig.writer.write_async(self.rig.redis)
        else:
            await self.rig.redis.zremrangebyscore("ck:processes", "-inf", self.rig.now_ms() - SCRAPE_S * 1000)
        now = self.rig.clock.now
        text = None if fails else generate_latest(await read_everything(self.rig.redis, now=now)).decode()
        now_s = (now - self._began).total_seconds()
        self.history.record(now_s, text)
        firing = {alert.name: alert.firing(self.history, now_s) for alert in self.alerts}
        self.fired = {name: series for name, series in firing.items() if series}
        self.steps.append((now_s, self.fired))


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+)([smh])", text)
    assert found, text
    return int(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]]

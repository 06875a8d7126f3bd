"""Which of our alerts fire, as Prometheus itself says: `promtool` evaluates the rules over the scrapes of a test."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

ALERTS = Path(__file__).parents[1] / "deploy" / "prometheus" / "alerts.yml"
SCRAPE_S = 15

Scrape = dict[tuple[str, frozenset[tuple[str, str]]], float]
"""Values by metric and labels."""

_LABEL = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*")')


@cache
def alert_rules() -> list[dict[str, Any]]:
    """Return the rules that we deliver, as written."""
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def scrape_of(text: str | None) -> Scrape:
    """Return what Prometheus stores of a page of metrics; None: the page could not be fetched."""
    return scrape_of_families(None if text is None else text_string_to_metric_families(text))


def scrape_of_families(families: Iterable[Metric] | None) -> Scrape:
    """Return the same of metrics that were not written as text, which is much faster."""
    scrape: Scrape = {("up", frozenset({("job", "callkeeper")})): 0.0 if families is None else 1.0}
    for family in families or ():
        for sample in family.samples:
            scrape[sample.name, frozenset(sample.labels.items())] = sample.value
    return scrape


def firing(scrapes: Sequence[Scrape], *, is_patient: bool = True) -> dict[str, list[dict[str, str]]]:
    """Return the alerts that fire at the last scrape, each with the labels of its series.

    Args:
        scrapes: One every 15 s, the oldest first. A series that a scrape does not have has ended.
        is_patient: Whether an alert's condition has to hold for as long as its rule says.
    """
    rules = [{"alert": rule["alert"], "expr": rule["expr"]} for rule in alert_rules()]
    for rule, written in zip(rules, alert_rules(), strict=True):
        rule["for"] = written.get("for", "0s") if is_patient else "0s"
    at = f"{(len(scrapes) - 1) * SCRAPE_S}s"
    test = {
        "interval": f"{SCRAPE_S}s",
        "input_series": list(_series(scrapes)),
        "alert_rule_test": [{"eval_time": at, "alertname": rule["alert"], "exp_alerts": []} for rule in rules],
    }
    with TemporaryDirectory() as folder:  # JSON is YAML, and is written much faster
        (Path(folder) / "rules.yml").write_text(json.dumps({"groups": [{"name": "ours", "rules": rules}]}))
        tests = {"rule_files": ["rules.yml"], "evaluation_interval": f"{SCRAPE_S}s", "tests": [test]}
        (Path(folder) / "tests.yml").write_text(json.dumps(tests))
        told = promtool("test", "rules", "tests.yml", folder=folder)
    fired = dict(_fired(told.stdout + told.stderr))
    assert (told.returncode == 0) == (not fired), told.stdout + told.stderr
    return fired


def promtool(*arguments: str, folder: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run promtool."""
    path = shutil.which("promtool")
    if path is None:
        pytest.fail("promtool is missing; on Debian and Ubuntu: apt-get install prometheus", pytrace=False)
    return subprocess.run([path, *arguments], cwd=folder, check=False, capture_output=True, text=True)  # noqa: S603


def _series(scrapes: Sequence[Scrape]) -> Iterator[dict[str, str]]:
    for name, labels in sorted({key for scrape in scrapes for key in scrape}, key=str):
        values, is_known = [], False
        for scrape in scrapes:
            value = scrape.get((name, labels))
            values.append(("stale" if is_known else "_") if value is None else f"{value:.17g}")
            is_known = value is not None
        pairs = ",".join(f"{label}={json.dumps(text)}" for label, text in sorted(labels))
        yield {"series": f"{name}{{{pairs}}}", "values": " ".join(values)}


def _fired(told: str) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Read what promtool says where alerts fire that nobody expects: it names them with their labels."""
    for block in told.split("alertname: ")[1:]:
        got = [line for line in block.splitlines() if line.lstrip().startswith("Labels:")]
        labels = [{name: json.loads(text) for name, text in _LABEL.findall(line)} for line in got]
        yield block.partition(",")[0], [{k: v for k, v in each.items() if k != "alertname"} for each in labels]

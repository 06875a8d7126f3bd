"""Lets promtool judge the alerts over the scrapes of a watch: Prometheus's own word on what fires when."""

import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.integration.figures.watching import ALERTS, SCRAPE_S, Watch


def judged_by(promtool: str, watch: Watch, folder: Path) -> str:
    """Return SUCCESS if promtool finds the same alerts firing at every scrape, else what it says."""
    rules = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))
    for group in rules["groups"]:
        for rule in group["rules"]:
            del rule["annotations"]
    (folder / "rules.yml").write_text(yaml.safe_dump(rules), encoding="utf-8")
    (folder / "tests.yml").write_text(yaml.safe_dump(_tests(watch)), encoding="utf-8")
    done = subprocess.run(  # noqa: S603  (our own files)
        [promtool, "test", "rules", "tests.yml"], cwd=folder, check=False, capture_output=True, text=True
    )
    return "SUCCESS" if done.returncode == 0 else done.stdout + done.stderr


def _tests(watch: Watch) -> dict[str, Any]:
    interval = f"{SCRAPE_S}s"
    test = {"interval": interval, "input_series": _series(watch), "alert_rule_test": list(_expected(watch))}
    return {"rule_files": ["rules.yml"], "evaluation_interval": interval, "tests": [test]}


def _series(watch: Watch) -> list[dict[str, str]]:
    scrapes = dict(watch.history.scrapes)
    last = int(max(scrapes) // SCRAPE_S)
    series = []
    for name, labels in sorted({key for scrape in scrapes.values() for key in scrape}, key=str):
        values, is_known = [], False
        for n in range(last + 1):
            value = scrapes.get(n * SCRAPE_S, {}).get((name, labels))
            values.append(("stale" if is_known else "_") if value is None else f"{value:.17g}")
            is_known = value is not None
        pairs = ",".join(f'{label}="{text}"' for label, text in sorted(labels))
        series.append({"series": f"{name}{{{pairs}}}", "values": " ".join(values)})
    return series


def _expected(watch: Watch) -> Any:
    for at_s, fired in watch.steps:
        for alert in watch.alerts:
            labels = [{"exp_labels": {**series, "severity": alert.severity}} for series in fired.get(alert.name, [])]
            yield {"eval_time": f"{int(at_s)}s", "alertname": alert.name, "exp_alerts": labels}

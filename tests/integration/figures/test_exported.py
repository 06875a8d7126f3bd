"""The metrics at /metrics, and the dashboard and alerts that use them."""

import base64
import json
import re
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path

import httpx
import promql_parser
import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from structlog.typing import FilteringBoundLogger

from callkeeper.calls.metrics.catalogue import FIGURES
from callkeeper.calls.metrics.counting import Figures
from callkeeper.calls.metrics.redis_writer import Author, FigureWriter
from callkeeper.calls.notes import Distrusted, Verified
from callkeeper.calls.pause import Pause, PauseScope
from callkeeper.calls.store.pausing import Pausing
from callkeeper.desk.access.configured_logins import AdminLogin
from callkeeper.desk.prometheus_page import MetricsPage, read_everything
from callkeeper.service.secret import Secret
from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.virtual_time import PHONE, Rig
from tests.promtool import alert_rules
from tests.signed_in import gate_of

DASHBOARD = Path(__file__).parents[3] / "deploy" / "grafana" / "callkeeper.json"
LABELS = frozenset(
    {"by", "endpoint", "institution", "kind", "le", "outcome", "phase", "process", "reason", "result", "rule", "stage"}
    | {"scope", "state", "type", "when", "why"}
)
"""Names of things, never of calls or people."""

ADMIN = AdminLogin("ops", Secret("canary-admin-0123456-4c07a65e93d2"))
BASIC = {"Authorization": "Basic " + base64.b64encode(b"ops:canary-admin-0123456-4c07a65e93d2").decode()}


@pytest.fixture
async def exported(rig: Rig) -> dict[str, frozenset[str]]:
    """Return all metrics by name, with their labels, after everything was counted once."""
    writer = FigureWriter(Figures(), Author("web-1", "web"), now_ms=rig.now_ms)
    for figure in FIGURES.values():
        labels = ["x"] * len(figure.labels)
        if figure.bounds:
            writer.figures.observe(figure, 1.0, *labels)
        else:
            writer.figures.count(figure, *labels)
    await writer.write_async(rig.redis)
    await rig.redis.hset("ck:2:attention", "c:cu-1:v", "parked")
    await Pausing(rig.redis).pause(None, Pause(scope=PauseScope.ALL, operator="o", because="b", at=rig.clock.now))
    text = generate_latest(await read_everything(rig.redis, now=rig.clock.now)).decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    by_prometheus = {"up": frozenset({"job"})}
    return {**{sample.name: frozenset(sample.labels) for sample in samples}, **by_prometheus}


def test_dashboard_is_limited_to_the_institutions_that_are_selected(exported: dict[str, frozenset[str]]) -> None:
    """Every figure of the dashboard that names an institution is limited by the selector, and no other; "All" is all."""
    dashboard = json.loads(DASHBOARD.read_text())
    [selector] = [each for each in dashboard["templating"]["list"] if each["name"] == "institution"]
    assert (selector["multi"], selector["includeAll"], selector["allValue"]) == (True, True, ".*")
    [listed] = re.findall(r"label_values\((\w+), institution\)", selector["query"]["query"])
    assert "institution" in exported[listed]
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    for metric, labels in [
        found for each in expressions for found in re.findall(r"(callkeeper_\w+)(\{[^}]*\})?", each)
    ]:
        is_limited = 'institution=~"$institution' in labels
        assert is_limited is ("institution" in exported[metric]), metric
        assert metric != "callkeeper_incident" or '"$institution|"' in labels, "those of the account have none"


def asked() -> Iterator[tuple[str, list[promql_parser.Expr]]]:
    """Yield every expression of the alerts and of the dashboard with all its parts, and where it stands."""
    for rule in alert_rules():
        yield rule["alert"], list(parts(promql_parser.parse(rule["expr"])))
    for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], list(parts(promql_parser.parse(target["expr"])))


def parts(expression: promql_parser.Expr) -> Iterator[promql_parser.Expr]:
    """Yield an expression and all expressions in it."""
    yield expression
    inner = [getattr(expression, name, None) for name in ("lhs", "rhs", "expr", "param", "vector_selector")]
    for each in (*inner, *getattr(expression, "args", ())):
        if each is not None:
            yield from parts(each)


def selectors(expressions: Iterable[promql_parser.Expr]) -> list[promql_parser.VectorSelector]:
    """Return what selects series."""
    return [each for each in expressions if isinstance(each, promql_parser.VectorSelector)]


def grouping_labels(expressions: Iterable[promql_parser.Expr]) -> Iterator[str]:
    """Yield every label that is grouped or matched by."""
    for each in expressions:
        if isinstance(each, promql_parser.AggregateExpr) and each.modifier is not None:
            yield from each.modifier.labels
        elif isinstance(each, promql_parser.BinaryExpr) and each.modifier is not None and each.modifier.matching:
            yield from each.modifier.matching.labels


async def test_everything_that_is_asked_for_is_exported(exported: dict[str, frozenset[str]]) -> None:
    """Every metric that an alert or a panel names is one of ours, under the labels that it selects by."""
    strange = [
        f"{where}: {selector.name}"
        for where, expressions in asked()
        for selector in selectors(expressions)
        if selector.name not in exported
        or not {matcher.name for matcher in selector.matchers.matchers} <= exported[selector.name]
    ]
    assert strange == []


async def test_every_grouping_is_by_labels_that_are_there(exported: dict[str, frozenset[str]]) -> None:
    """What an expression groups or matches by is a label of each metric in it."""
    strange = [
        f"{where}: {label}"
        for where, expressions in asked()
        for label in grouping_labels(expressions)
        for selector in selectors(expressions)
        if label not in exported[str(selector.name)]
    ]
    assert strange == []


async def test_everything_exported_is_shown(exported: dict[str, frozenset[str]]) -> None:
    """Every exported metric is used by the dashboard or an alert."""
    shown = {selector.name for _, expressions in asked() for selector in selectors(expressions)}
    ends = ("_bucket", "_sum", "_count", "_created")
    assert {name for name in exported if name not in shown and not name.endswith(ends)} == set()


async def test_labels_are_names_of_things(exported: dict[str, frozenset[str]]) -> None:
    """Promise 6: no label holds a call, a number or a person."""
    assert {label for labels in exported.values() for label in labels} <= LABELS | {"job"}


async def test_nothing_exported_names_a_call(rig: Rig) -> None:
    """Promise 6: after calls with all that can happen, no id, number, person or operator is in the figures."""
    calls = [
        rig.stage.call(Happening(Kind.GREEN, 12), Happening(Kind.END, 60)),
        rig.stage.call(Happening(Kind.MFA_VALIDATED, 12), Happening(Kind.END, 60)),
        rig.stage.call(Happening(Kind.RED, 12), Happening(Kind.END, 60)),
        rig.stage.call(Happening(Kind.END, 60)),
    ]
    for call in calls:
        await rig.push(call)
    await rig.run(20)
    await rig.note(calls[2], Distrusted(operator="operator-ann", said_at=rig.clock.now))
    word = Verified(person_id="p-1", validation_type="Other", operator="operator-ann", said_at=rig.clock.now)
    await rig.note(calls[3], word)
    await rig.run(80)
    await rig.counted()
    text = generate_latest(await read_everything(rig.redis, now=rig.clock.now)).decode()
    assert "callkeeper_calls_settled_total" in text
    private = [PHONE, PHONE[-4:], "p-1", "operator-ann", "Ada", "Example"]
    ids = [name for call in calls for name in (call.voice_id, call.alternate_id)]
    assert [word for word in (*private, *ids) if f'"{word}"' in text or (len(word) > 6 and word in text)] == []


async def test_figures_are_exported_before_they_are_first_counted(rig: Rig) -> None:
    """What alerts count on is 0 from the start, for every institution: its first time is an increase."""
    await rig.tick()
    text = generate_latest(await read_everything(rig.redis, now=rig.clock.now)).decode()
    for line in (
        'callkeeper_calls_found_total{by="push",institution="cu-1"} 0.0',
        'callkeeper_budget_spent_total{institution="cu-1",when="early"} 0.0',
        'callkeeper_logins_total{outcome="LoginRefused"} 0.0',
        'callkeeper_pushes_refused_total{reason="not_recorded"} 0.0',
        "callkeeper_steps_failed_total 0.0",
        'callkeeper_processes{kind="worker"} 0.0',
    ):
        assert line in text


async def test_histograms_are_cumulative(rig: Rig) -> None:
    """A bucket holds every value up to its bound, as Prometheus has it; the last one holds all."""
    for value in (0.1, 2.0, 2.0, 1000.0):
        rig.figures.observe(FIGURES["shift_seconds"], value)
    await rig.counted()
    text = generate_latest(await read_everything(rig.redis, now=rig.clock.now)).decode()
    for line in (
        'bucket{le="0.1"} 1.0',
        'bucket{le="2"} 3.0',
        'bucket{le="60"} 3.0',
        'bucket{le="+Inf"} 4.0',
        "count 4.0",
    ):
        assert f"callkeeper_shift_seconds_{line}" in text


@pytest.fixture
async def page(redis: Redis, log: FilteringBoundLogger) -> AsyncIterator[httpx.AsyncClient]:
    """Return a client of the page, as it is mounted."""
    app = gate_of(MetricsPage(redis), ADMIN, log)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://web") as client:
        yield client


async def test_metrics_are_behind_the_login(page: httpx.AsyncClient) -> None:
    """Without credentials /metrics shows nothing."""
    assert (await page.get("/metrics")).status_code == 401
    answer = await page.get("/metrics", headers=BASIC)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "# HELP callkeeper_pushes_total push events recorded" in answer.text
    assert (await page.post("/metrics", headers=BASIC)).status_code == 405


async def test_metrics_speak_openmetrics_when_asked(page: httpx.AsyncClient) -> None:
    """Prometheus asks for the newer form, and gets it."""
    answer = await page.get("/metrics", headers={**BASIC, "Accept": "application/openmetrics-text; version=1.0.0"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert answer.text.endswith("# EOF\n")


async def test_metrics_without_redis_are_none(log: FilteringBoundLogger) -> None:
    """If Redis is down, the scrape fails, which triggers the first alert."""
    away = MetricsPage(Redis(host="127.0.0.1", port=1, retry=Retry(NoBackoff(), 0)))
    app = gate_of(away, ADMIN, log)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://web") as client:
        assert (await client.get("/metrics", headers=BASIC)).status_code == 503


def test_dashboard_has_a_meaning_for_every_panel() -> None:
    """A panel says what it shows; no two have the same id or lie over each other's place."""
    panels = [p for p in json.loads(Path(DASHBOARD).read_text(encoding="utf-8"))["panels"] if p["type"] != "row"]
    assert all(panel["description"] and panel["title"] for panel in panels)
    places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in panels]
    assert len(set(places)) == len(places) == len({panel["id"] for panel in panels})

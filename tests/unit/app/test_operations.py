"""docs/operations.md and docs/configuration.md cover every message that refers to them."""

import re
from pathlib import Path

import pytest

from callkeeper.app import causes_document
from callkeeper.app.cli import main
from callkeeper.app.doctor import Topic
from callkeeper.app.documents import configuration_document
from callkeeper.app.settings import VARIABLES, WebSettings, WorkerSettings
from callkeeper.calls.causes import CAUSES
from tests.promtool import alert_rules

ROOT = Path(__file__).parents[3]
OPERATIONS = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
PAGES = ("README.md", "docs/operations.md", "docs/configuration.md", "deploy/README.md")


def sections(kind: str) -> list[str]:
    """Return the sections of a kind, by name."""
    return re.findall(rf"^### {kind}: (.+)$", OPERATIONS, re.MULTILINE)


def headings() -> set[str]:
    """Return the anchors of all headings of the runbook."""
    return {
        re.sub(r"[^\w -]", "", line.lstrip("# ").lower()).replace(" ", "-")
        for line in OPERATIONS.splitlines()
        if line.startswith("#")
    }


def test_every_line_of_the_doctor_has_a_section() -> None:
    """The runbook has a section for each topic of the doctor, and no other ones."""
    assert sections("doctor") == [str(topic) for topic in Topic if topic is not Topic.INCIDENT]


def test_every_alert_leads_to_a_section() -> None:
    """The link of every alert leads to a section, and there is no section of a removed alert."""
    alerts = {rule["alert"]: rule["annotations"]["runbook_url"] for rule in alert_rules()}
    assert {url.partition("/board/operations#")[2] for url in alerts.values()} <= headings()
    assert set(sections("alert")) <= alerts.keys()


@pytest.mark.parametrize("path", [causes_document.RUNBOOK, causes_document.RULES])
def test_runbook_and_prometheus_say_what_the_causes_say(path: str) -> None:
    """Both files have the table of causes as it is, so messages, board, doctor and Prometheus are of one mind."""
    text = (ROOT / path).read_text(encoding="utf-8")
    assert causes_document.with_causes(path, text) == text, "make generate"
    assert causes_document.with_causes(path, text.replace("Calls are late", "?")) == text


def test_every_cause_has_an_alert_as_urgent_as_its_messages() -> None:
    """Prometheus is as urgent as the messages. Only web exports figures, so it cannot say *no web*."""
    found = {(rule["expr"], rule["labels"]["severity"]) for rule in alert_rules()}
    for cause in CAUSES.values():
        where = ',institution=""' if cause.name == "pushes_refused" else ""
        expected = (f'callkeeper_incident{{kind="{cause.name}"{where}}} == 1', str(cause.weight))
        assert (expected in found) is (cause.name != "no_web"), cause.name


@pytest.mark.parametrize("page", PAGES)
def test_page_names_only_what_exists(page: str) -> None:
    """Commands, variables and files that a page names exist."""
    text = (ROOT / page).read_text(encoding="utf-8")
    commands = set(re.findall(r"(?:`|^ {4}(?:\S*/)?|run )callkeeper ([a-z]+)", text, re.MULTILINE))
    assert commands <= set(main.list_commands(None))  # type: ignore[arg-type]  # no context is needed to list them
    assert set(re.findall(r"CALLKEEPER_[A-Z_]*[A-Z]", text)) <= VARIABLES.keys()
    for target in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", text):
        assert (ROOT / page).parent.joinpath(target).exists(), target


def test_links_within_operations_lead_somewhere() -> None:
    """Every link to a heading of the page finds it."""
    assert set(re.findall(r"\]\(#([^)]+)\)", OPERATIONS)) <= headings()


def test_configuration_is_the_one_that_is_generated() -> None:
    """docs/configuration.md is never older than the settings."""
    told = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert told == configuration_document(), "python -m callkeeper.app.documents > docs/configuration.md"


def test_configuration_tells_who_reads_a_secret() -> None:
    """The web process reads none of the service's credentials, a worker no push secret."""
    web, worker = WebSettings.variables(), WorkerSettings.variables()
    assert web["CALLKEEPER_PUSH_HEADERS"].is_required
    assert worker["CALLKEEPER_PASSWORD"].is_required
    assert not {"CALLKEEPER_PASSWORD", "CALLKEEPER_ACCESS_TOKEN"} & set(web)
    assert "CALLKEEPER_PUSH_HEADERS" not in worker
    assert set(web) | set(worker) == set(VARIABLES)

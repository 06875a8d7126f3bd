"""The reference pages of the documentation site name everything that the code has."""

import re
from pathlib import Path

import click
import pytest

from callkeeper.app.cli import main
from docs.site import reference
from docs.site.__main__ import PAGES, WRITTEN, gather

ROOT = Path(__file__).parents[2]


def paths_of(group: click.Group, path: str) -> list[str]:
    """Return every command below a group, as it is typed."""
    context = click.Context(group)
    found = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        found += [f"{path} {name}", *(paths_of(command, f"{path} {name}") if isinstance(command, click.Group) else [])]
    return found


def test_every_command_has_a_section() -> None:
    """Whoever looks for a command finds it under its name."""
    headings = set(re.findall(r"^#+ (callkeeper .+)$", reference.commands(), re.MULTILINE))
    assert headings == set(paths_of(main, "callkeeper"))


@pytest.mark.parametrize("file", ["deploy/prometheus/alerts.yml", "deploy/grafana/callkeeper.json"])
def test_every_metric_that_is_delivered_is_described(file: str) -> None:
    """What alerts and dashboard ask for is on the page of metrics."""
    described = set(re.findall(r"^## (\w+)$", reference.metrics(), re.MULTILINE))
    asked = set(re.findall(r"\bcallkeeper_\w+", (ROOT / file).read_text(encoding="utf-8")))
    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in asked} - described == set()


def test_every_page_is_in_the_navigation(tmp_path: Path) -> None:
    """No page can be reached by the search alone, and none is named that does not exist."""
    gather(tmp_path / "site")
    named = set(re.findall(r'"([\w-]+\.md)"', (tmp_path / "site" / "zensical.toml").read_text(encoding="utf-8")))
    assert named == {*PAGES.values(), *WRITTEN} == {path.name for path in (tmp_path / "site" / "pages").glob("*.md")}

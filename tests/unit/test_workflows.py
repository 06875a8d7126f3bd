"""What runs on the hosting site: actions pinned to a commit, and no permission that is not needed."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.fixture(params=WORKFLOWS, ids=lambda path: path.name)
def workflow(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return one workflow."""
    read: dict[str, Any] = yaml.safe_load(request.param.read_text())
    return read


def steps(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the steps of all jobs."""
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def test_workflow_pins_every_action_by_the_hash_of_a_commit(workflow: dict[str, Any]) -> None:
    """A tag can be moved to somebody else's code; the hash of a commit cannot."""
    used = [step["uses"] for step in steps(workflow) if "uses" in step]
    assert used
    assert [action for action in used if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action)] == []


def test_workflow_may_do_nothing_but_read(workflow: dict[str, Any]) -> None:
    """Nothing is granted to all jobs, and reading the tree to each; the checkout leaves no credentials behind."""
    assert workflow["permissions"] == {}
    assert [job["permissions"] for job in workflow["jobs"].values()] == [{"contents": "read"}] * len(workflow["jobs"])
    checkouts = [step for step in steps(workflow) if "checkout" in step.get("uses", "")]
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


def test_workflow_runs_no_text_of_strangers(workflow: dict[str, Any]) -> None:
    """No command holds an expression: titles and branches of strangers cannot become a shell's words."""
    assert [step["run"] for step in steps(workflow) if "${{" in step.get("run", "")] == []


def test_workflow_fails_closed_without_advisories() -> None:
    """Where the service of advisories can be reached it must be."""
    assert any('make audit ARGS="--strict"' in path.read_text() for path in WORKFLOWS)


def test_release_is_built_of_the_commit_that_its_tag_names() -> None:
    """The workflow compares tag and version before it builds anything."""
    (build,) = yaml.safe_load((WORKFLOWS[0].parent / "release.yml").read_text())["jobs"].values()
    commands = [step.get("run", "") for step in build["steps"]]
    compared = next(n for n, command in enumerate(commands) if "GITHUB_REF_NAME" in command)
    assert compared < commands.index("make release")

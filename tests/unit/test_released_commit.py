"""The commit of the previous release is read from CHANGELOG.md, and the version says whether a commit is a release."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.rollout.released import ROOT, released_commit

NEW, OLD = "a" * 40, "0123456789" * 4


def test_newest_release_with_a_commit_counts() -> None:
    """A version that is being prepared has no commit yet, so the commit of the version before it counts."""
    released = f"## 0.2.0\n\nCommit: `{OLD}`\n\n### Added\n"
    assert released_commit("# Changelog\n\n## Unreleased\n\n## 0.2.0\n\n- A line.\n") is None
    assert released_commit(f"# Changelog\n\n## Unreleased\n\n## 0.3.0\n\n- A line.\n\n{released}") == OLD
    assert released_commit(f"## 0.3.0\n\nCommit: `{NEW}`\n\n{released}") == NEW


@pytest.mark.parametrize(
    "text",
    [
        f"## Unreleased\n\nCommit: `{OLD}`\n",
        f"Commit: `{OLD}`\n",
        "## 0.2.0\n\nCommit: `d3d0b98`\n",
        f"## 0.2.0\n\nCommit: {OLD}\n",
    ],
    ids=["not released", "no heading", "abbreviated", "no backticks"],
)
def test_commit_that_is_not_named_properly_is_an_error(text: str) -> None:
    """A malformed commit line is an error, so the compatibility test cannot silently skip the released version."""
    with pytest.raises(ValueError, match="write Commit:"):
        released_commit(text)


def test_changelog_names_commits_properly() -> None:
    """The commit lines in CHANGELOG.md can be read."""
    released_commit((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))


def test_version_says_whether_a_commit_is_a_release() -> None:
    """Only a release has a version without a suffix: the one that CHANGELOG.md begins with. All other commits have ".dev0".

    So a process, a wheel and an image of another commit never pass for the release.
    """
    newest, *older = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    version = version_of(ROOT)
    if newest == "Unreleased":
        number, suffix = version.rsplit(".", 1)
        assert suffix == "dev0", f"{version} is the version of a release, but CHANGELOG.md begins with Unreleased"
        assert as_numbers(number) > as_numbers(older[0])
    else:
        assert version == newest
    assert {version_of(ROOT / part) for part in ("client", "sandbox")} == {version}


def test_kubernetes_files_name_the_newest_release() -> None:
    """The image that the manifests name was released."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = next(heading for heading in re.findall(r"^## (.+)$", text, re.MULTILINE) if heading != "Unreleased")
    (image,) = yaml.safe_load((ROOT / "deploy/kubernetes/kustomization.yaml").read_text(encoding="utf-8"))["images"]
    assert image["newTag"] == newest


def version_of(folder: Path) -> str:
    """Return the version in a folder's pyproject.toml."""
    return str(tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])


def as_numbers(version: str) -> tuple[int, ...]:
    """Return a version of numbers only, for comparing."""
    return tuple(int(part) for part in version.split("."))

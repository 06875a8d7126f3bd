"""The commit of the previous release is read from CHANGELOG.md."""

import pytest

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

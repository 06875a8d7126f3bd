"""The commit of the previous release is read from CHANGELOG.md, and the version says whether a commit is a release."""

import re
import subprocess
import tomllib

import pytest

from tests.rollout.released import ROOT, released_commit
from tests.rollout.version import IMAGES, PACKAGES, files, named, spelled, written

NEW, OLD = "a" * 40, "0123456789" * 4
HEADINGS = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
RELEASES = [heading for heading in HEADINGS if heading != "Unreleased"]
VERSION = str(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])
PLACES = PACKAGES | IMAGES
OF_OTHERS = ("requirements.txt", "requirements-dev.txt", "requirements-redis8.txt", "package-lock.json")


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
    newest, *older = HEADINGS
    if newest == "Unreleased":
        number, suffix = VERSION.rsplit(".", 1)
        assert suffix == "dev0", f"{VERSION} is the version of a release, but CHANGELOG.md begins with Unreleased"
        assert as_numbers(number) > as_numbers(older[0])
    else:
        assert newest == VERSION


@pytest.mark.parametrize("name", PLACES)
def test_file_names_the_version(name: str) -> None:
    """Every package, of Python and of npm, has the project's version. Files that name an image name a released one."""
    wanted = RELEASES[0] if name in IMAGES else spelled(name, VERSION)
    assert set(named((ROOT / name).read_text(encoding="utf-8"), PLACES[name])) == {wanted}, "make version"


def test_no_other_file_names_a_version() -> None:
    """A file that `make version` does not know would name an old release for ever.

    Sentences about what a release stores or does may name it; they have the word "release". Lock files name others'
    versions, and CHANGELOG.md all of ours.
    """
    known = {*RELEASES, VERSION, spelled("package.json", VERSION)}
    ours = re.compile(rf"(?<![\d.])({'|'.join(map(re.escape, known))})(?!\.?\d)")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S607
    forgotten = []
    for name in listed.stdout.split("\0"):
        if not name or name.startswith(("tests/", "CHANGELOG.md")) or name.endswith((*OF_OTHERS, ".png")):
            continue
        text = (ROOT / name).read_text(encoding="utf-8")
        text = written(text, PLACES[name], "") if name in PLACES else text
        lines = enumerate(text.splitlines(), 1)
        forgotten += [f"{name}:{n}" for n, line in lines if ours.search(line) and "release" not in line.lower()]
    assert forgotten == []


@pytest.mark.parametrize("version", ["1.2.3", "1.3.0.dev0"])
def test_every_file_can_be_given_another_version(version: str) -> None:
    """`make version` writes a release into every file, and any other version into those of packages only."""
    assert dict(files(version)) == (PLACES if version == "1.2.3" else PACKAGES)
    for name, pattern in files(version):
        before = (ROOT / name).read_text(encoding="utf-8")
        after = written(before, pattern, spelled(name, version))
        assert named(after, pattern) == [spelled(name, version)] * len(named(before, pattern))
        assert len(after.splitlines()) == len(before.splitlines())


@pytest.mark.parametrize("name", PACKAGES)
def test_package_has_the_license(name: str) -> None:
    """The license must go with every copy, and each package is one: its folder has the text, which is packed."""
    assert (ROOT / name).with_name("LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def as_numbers(version: str) -> tuple[int, ...]:
    """Return a version of numbers only, for comparing."""
    return tuple(int(part) for part in version.split("."))

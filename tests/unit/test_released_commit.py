"""The version says whether a commit is a release, and every file that names it names the same."""

import re
import subprocess
import tomllib

import pytest

from tests.rollout.released import ROOT
from tests.rollout.version import IMAGES, PACKAGES, named, written

HEADINGS = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
RELEASES = [heading for heading in HEADINGS if heading != "Unreleased"]
VERSION = str(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])
PLACES = PACKAGES | IMAGES
OF_OTHERS = ("requirements.txt", "requirements-dev.txt", "package-lock.json")


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
    """Every package has the project's version. Files that name an image name a released one."""
    wanted = RELEASES[0] if name in IMAGES else VERSION
    assert set(named((ROOT / name).read_text(encoding="utf-8"), PLACES[name])) == {wanted}, "make version"


def test_no_other_file_names_a_version() -> None:
    """A file that `make version` does not know would name an old release for ever.

    Sentences about what a release stores or does may name it; they have the word "release". Lock files name others'
    versions, and CHANGELOG.md all of ours.
    """
    known = {*RELEASES, VERSION}
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


@pytest.mark.parametrize("name", PACKAGES)
def test_package_has_the_license(name: str) -> None:
    """The license must go with every copy, and each package is one: its folder has the text, which is packed."""
    assert (ROOT / name).with_name("LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def as_numbers(version: str) -> tuple[int, ...]:
    """Return a version of numbers only, for comparing."""
    return tuple(int(part) for part in version.split("."))

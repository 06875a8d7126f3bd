"""``make version ARGS=1.2.0``: writes a version into every file that names it.

A release has a number, every other commit the next one with a suffix: ``.dev0``. Files that name an
image name one that can be pulled, so only a release is written there.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]

_PYTHON: Final = r'^version = "([^"]+)"'

PACKAGES: Final = {
    "pyproject.toml": _PYTHON,
    "sandbox/pyproject.toml": _PYTHON,
}
"""The files of packages, with the pattern around the version."""

IMAGES: Final = {
    "deploy/kubernetes/kustomization.yaml": r"newTag: (\S+)",
    "docs/examples/rulebook/ci.yaml": r"/callkeeper:(\S+)",
}
"""The files that name an image."""


def named(text: str, pattern: str) -> list[str]:
    """Return the versions that a file names."""
    return re.findall(pattern, text, re.MULTILINE)


def written(text: str, pattern: str, version: str) -> str:
    """Return the text of a file with another version."""
    return re.sub(pattern, lambda found: found[0].replace(found[1], version), text, flags=re.MULTILINE)


def files(version: str) -> Iterator[tuple[str, str]]:
    """Yield the files that name this version, with their patterns."""
    yield from PACKAGES.items()
    if not version.endswith(".dev0"):
        yield from IMAGES.items()


def main(version: str) -> None:
    """Write a version into every file that names it."""
    if re.fullmatch(r"\d+\.\d+\.\d+(\.dev0)?", version) is None:
        raise SystemExit("Name the version: ARGS=1.2.0 for a release, ARGS=1.3.0.dev0 after it.")
    for name, pattern in files(version):
        path = ROOT / name
        path.write_text(written(path.read_text(encoding="utf-8"), pattern, version), encoding="utf-8")


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]))

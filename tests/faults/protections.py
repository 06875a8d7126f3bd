"""Removes protections from a copy of the code, one at a time, and checks that a test then fails.

``python -m tests.faults.protections`` exits with 1 if a test still passed. In that case the test does not cover
the protection, or the protection is not needed. ``python -m tests.faults.protections C15`` tries those of one case.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from textwrap import wrap

import msgspec

ROOT = Path(__file__).parents[2]
LONGEST_S = 180.0
_TAKEN_ALONG = ("callkeeper", "receiver", "sandbox", "workers", "tests", "docs")


class Protection(msgspec.Struct, frozen=True, rename={"intact": "is", "removed": "was"}, forbid_unknown_fields=True):
    """One protection; see protections.toml. ``also`` is a second replacement that keeps the changed code running."""

    case: str
    words: str
    file: str
    intact: str
    removed: str
    test: str
    also: tuple[str, str] | None = None

    def removed_from(self, code: str) -> str:
        """Return the code without the protection."""
        code = code.replace(self.intact, self.removed)
        return code.replace(*self.also, 1) if self.also else code


def protections() -> tuple[Protection, ...]:
    """Read the list."""
    table = tomllib.loads(Path(__file__).with_name("protections.toml").read_text(encoding="utf-8"))
    return msgspec.convert(table["protection"], tuple[Protection, ...])


def document() -> str:
    """Return the list in Markdown."""
    items = (f"{p.words} ({p.case}): `{p.test.rpartition('/')[2]}`" for p in protections())
    return "\n".join([*(line for text in items for line in item(text)), ""])


def item(text: str) -> list[str]:
    """Return a list item in lines of less than 120 characters."""
    return wrap(text, 116, initial_indent="- ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def turns_red(protection: Protection, copy: Path) -> bool:
    """Tell whether the test fails on a copy of the code without the protection. A timeout counts as a failure."""
    file = copy / protection.file
    intact = file.read_text(encoding="utf-8")
    file.write_text(protection.removed_from(intact), encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:randomly",
        "-p",
        "no:cacheprovider",
        protection.test,
    ]
    environ = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1", "TEST_NIGHT": "1"}
    try:
        ended = subprocess.run(  # noqa: S603  (our own arguments)
            command, cwd=copy, env=environ, capture_output=True, timeout=LONGEST_S, check=False
        )
    except subprocess.TimeoutExpired:
        return True
    finally:
        file.write_text(intact, encoding="utf-8")
    return ended.returncode == 1


def main(cases: list[str]) -> int:
    """Try all protections, or those of some cases; return the exit status."""
    chosen = [p for p in protections() if not cases or set(p.case.split(", ")) & set(cases)]
    green = 0
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary)
        for name in _TAKEN_ALONG:
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", copy)
        for protection in chosen:
            is_red = turns_red(protection, copy)
            green += not is_red
            print(f"{'red  ' if is_red else 'GREEN'}  {protection.case:8} {protection.words}", flush=True)  # noqa: T201
    return 1 if green else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

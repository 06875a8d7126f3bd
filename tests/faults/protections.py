"""Removes protections from a copy of the code, one at a time, and checks that a test then fails.

``python -m tests.faults.protections`` exits with 1 if a test still passed. In that case the test does not cover
the protection, or the protection is not needed. ``python -m tests.faults.protections C15`` tries those of one case.
"""

import sys
import tomllib
from pathlib import Path

import msgspec

from tests.mutation.tree import copies, is_noticed

LONGEST_S = 180.0


class Protection(msgspec.Struct, frozen=True, rename={"intact": "is", "removed": "was"}, forbid_unknown_fields=True):
    """One protection; see protections.toml. ``also`` is a second replacement that keeps the changed code running."""

    case: str
    words: str
    file: str
    intact: str
    removed: str
    test: str
    also: tuple[str, str] | None = None

    @property
    def changes(self) -> list[tuple[str, str]]:
        return [(self.intact, self.removed), *([self.also] if self.also else [])]


def protections() -> tuple[Protection, ...]:
    """Read the list."""
    table = tomllib.loads(Path(__file__).with_name("protections.toml").read_text(encoding="utf-8"))
    return msgspec.convert(table["protection"], tuple[Protection, ...])


def main(cases: list[str]) -> int:
    """Try all protections, or those of some cases; return the exit status."""
    chosen = [p for p in protections() if not cases or set(p.case.split(", ")) & set(cases)]
    green = 0
    with copies() as free:
        copy = free.get()
        for protection in chosen:
            is_red = is_noticed(copy, protection.file, protection.changes, [protection.test], LONGEST_S)
            green += not is_red
            print(f"{'red  ' if is_red else 'GREEN'}  {protection.case:8} {protection.words}", flush=True)  # noqa: T201
    return 1 if green else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

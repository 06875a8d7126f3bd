"""What is recorded: scenarios, which are inputs, and what came of each call. Also the files that hold both.

A scenario is what enters at the seams, in order: what happens at the service, pushes, words of people, faults of the
service, failures of workers and of Redis, and time. Nothing in it depends on how the core is made.
"""

import gzip
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

Op = list[Any]
"""One input: its name (see `tests.corpus.playing`), then its arguments. If it is about a call, the first is its number."""


class Scenario(msgspec.Struct, frozen=True):
    """Inputs of one run. ``rules`` names a text of the corpus; ``ops`` say when, because some let time pass."""

    name: str
    rules: str
    variants: list[str]
    ops: list[Op]


class Request(msgspec.Struct, frozen=True, array_like=True):
    """A request that reached the service, and the HTTP status with which it was answered."""

    at_s: float
    what: str
    status: int | None = None


class Moment(msgspec.Struct, frozen=True, array_like=True):
    """What had changed at a moment: values by name; None for a name that is gone."""

    at_s: float
    changed: dict[str, Any]


class CallOutcome(msgspec.Struct, frozen=True):
    """What came of one call. ``experience`` is a digest of all that it met: two calls with the same one are duplicates."""

    name: str
    experience: str
    requests: list[Request]
    moments: list[Moment]
    told: dict[str, Any]


class Played(msgspec.Struct, frozen=True):
    """What came of a scenario. ``broken`` are promises that the judge saw broken, or the error that ended it."""

    name: str
    calls: list[CallOutcome]
    broken: list[str]


class About(msgspec.Struct, frozen=True):
    """Where a corpus comes from. ``stand_in`` is a digest of the code of the service's stand-in, which lies beside it."""

    revision: str
    stand_in: str
    calls: int
    scenarios: int
    duplicates: int


class Corpus:
    """A folder with a corpus."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stand_in = folder / "stand_in"

    @property
    def about(self) -> About:
        return msgspec.json.decode((self.folder / "about.json").read_bytes(), type=About)

    @property
    def rules(self) -> dict[str, str]:
        """Return the texts of the rules, by the name that scenarios use."""
        return msgspec.json.decode((self.folder / "rules.json").read_bytes(), type=dict[str, str])

    def begin(self, rules: dict[str, str]) -> None:
        """Write the rules."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "rules.json").write_bytes(msgspec.json.format(msgspec.json.encode(rules)))

    def finish(self, about: About) -> None:
        """Write where it comes from. A corpus without that is not complete."""
        (self.folder / "about.json").write_bytes(msgspec.json.format(msgspec.json.encode(about)))

    def recorded(self) -> Iterator[tuple[Scenario, Played]]:
        """Yield each scenario with what came of it."""
        scenarios = read_lines(self.folder / "inputs.jsonl.gz", Scenario)
        yield from zip(scenarios, read_lines(self.folder / "outcomes.jsonl.gz", Played), strict=True)

    def write(self, recorded: Iterable[tuple[Scenario, Played]]) -> None:
        """Write scenarios with what came of each. The same ones give the same files."""
        with (
            (self.folder / "inputs.jsonl.gz").open("wb") as inputs,
            (self.folder / "outcomes.jsonl.gz").open("wb") as outcomes,
            gzip.GzipFile("", "wb", 6, inputs, mtime=0) as scenarios,
            gzip.GzipFile("", "wb", 6, outcomes, mtime=0) as played,
        ):
            for scenario, outcome in recorded:
                scenarios.write(msgspec.json.encode(scenario) + b"\n")
                played.write(msgspec.json.encode(outcome) + b"\n")


def read_lines(path: Path, kind: type[T]) -> Iterator[T]:
    """Yield the records of a file, one a line."""
    with gzip.open(path) as lines:
        for line in lines:
            yield msgspec.json.decode(line, type=kind)


def digest(value: object) -> str:
    """Return a short digest of a plain value."""
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()[:16]


def digest_of_code(folder: Path) -> str:
    """Return a short digest of the Python files below a folder."""
    return digest({str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*.py"))})

"""Typed reading of a parsed TOML file: every wrong key and value becomes a fault, and reading goes on.

A fault is told so that the file's author can repair it: on which line, in which rule, what is wrong, what is allowed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from enum import StrEnum
from typing import Any, TypeVar

from calls.institutions import nearest
from calls.rules.lines import Lines

Choice = TypeVar("Choice", bound=StrEnum)


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One fault. ``line`` counts from 1.

    ``rule`` is the name of the rule it is in, or ``number 3`` where that has none; ``noun`` says what it is in, if no rule.
    """

    line: int
    problem: str
    allowed: str = ""
    rule: str | None = None
    noun: str = "rule"

    def __str__(self) -> str:
        """Say the fault in one line, without the file's name."""
        where = f"{self.line}: " + (f"{self.noun} {self.rule}: " if self.rule else "")
        return f"{where}{self.problem}" + (f"; {self.allowed}" if self.allowed else "")


class RulesError(Exception):
    """A rules file that cannot be used. ``faults`` lists all that is wrong, by line."""

    def __init__(self, name: str, faults: Iterable[Fault]) -> None:
        self.name = name
        self.faults = tuple(sorted(faults))
        super().__init__("\n".join(self.lines))

    @classmethod
    def unreadable(cls, name: str, why: str) -> "RulesError":
        """Return the error for a file that cannot be read."""
        return cls(name, [Fault(1, f"cannot be read ({why})", "name a TOML file, or a shipped one")])

    @property
    def lines(self) -> list[str]:
        """Return the faults as ``file:line: what is wrong; what is allowed``, the form that editors follow."""
        return [f"{self.name}:{fault}" for fault in self.faults]


def one_of(allowed: Iterable[str], wrong: object = None) -> str:
    """Say what is allowed, and which of it is nearest to what was written."""
    words = list(allowed)
    close = nearest(wrong, words) if isinstance(wrong, str) else None
    meant = f"did you mean {close!r}? " if close is not None else ""
    return f"{meant}allowed: {', '.join(words)}"


@dataclass(slots=True)
class Faults:
    """Collects what is wrong."""

    lines: Lines
    found: list[Fault] = field(default_factory=list)

    def add(
        self, path: tuple[str | int, ...], problem: str, allowed: str, rule: str | None = None, noun: str = "rule"
    ) -> None:
        """Note a fault at the line of a place."""
        self.found.append(Fault(self.lines.find(*path), problem, allowed, rule, noun))


@dataclass(frozen=True, slots=True)
class Section:
    """One table of the file.

    ``label`` is how messages call it; ``rule`` is the rule (or whatever ``noun`` says) that it is in.
    """

    faults: Faults
    table: Mapping[str, Any]
    path: tuple[str | int, ...] = ()
    label: str = "the file"
    rule: str | None = None
    noun: str = "rule"

    def fault(self, key: str | int | None, problem: str, allowed: str = "") -> None:
        """Note a fault at one of the table's keys, or at the table itself."""
        path = self.path if key is None else (*self.path, key)
        self.faults.add(path, problem, allowed, self.rule, self.noun)

    def only(self, allowed: Iterable[str]) -> None:
        """Note every key that means nothing here."""
        keys = tuple(allowed)
        for key in self.table:
            if key not in keys:
                self.fault(key, f"{self.label} has no key {key!r}", one_of(keys, key))

    def section(self, key: str, allowed: Iterable[str]) -> "Section":
        """Return a table within this one; an empty one if it is missing or no table."""
        value = self.table.get(key, {})
        if not isinstance(value, dict):
            self.fault(key, f"{key} must be a table", f"write [{key}]")
            value = {}
        section = Section(self.faults, value, (*self.path, key), f"[{key}]")
        section.only(allowed)
        return section

    def flag(self, key: str, *, default: bool) -> bool:
        """Return true or false."""
        value = self.table.get(key, default)
        if isinstance(value, bool):
            return value
        self.fault(key, f"{key} must be true or false, not {shown_value(value)}", "write it without quotes")
        return default

    def number(self, key: str, default: float, *, least: float) -> float:
        """Return a number of at least so much."""
        value = self.table.get(key, default)
        if _is_number(value) and value >= least:
            return float(value)
        self.fault(key, f"{key} must be a number, not {shown_value(value)}", f"allowed: {least:g} or more")
        return default

    def count(self, key: str, default: int, *, most: int) -> int:
        """Return a whole number from 0 to so much."""
        value = self.table.get(key, default)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most:
            return value
        self.fault(key, f"{key} must be a whole number, not {shown_value(value)}", f"allowed: 0 to {most}")
        return default

    def numbers(self, key: str, example: str) -> tuple[float, ...] | None:
        """Return a list of numbers; None where there is none."""
        value = self.table.get(key)
        if isinstance(value, list) and all(_is_number(number) for number in value):
            return tuple(float(number) for number in value)
        problem = f"{key} is missing" if value is None else f"{key} must be a list of numbers, not {shown_value(value)}"
        self.fault(key, problem, f"for example {key} = {example}")
        return None

    def text(self, key: str, why: str) -> str:
        """Return a text that has to be there and to say something; ``why`` is what it is for."""
        value = self.table.get(key)
        if isinstance(value, str) and value.strip():
            return value
        problem = f"{key} is missing" if value is None else f"{key} must be a text that says something"
        self.fault(key, problem, why)
        return ""

    def texts(self, key: str, example: str) -> tuple[str, ...]:
        """Return a list of texts, empty where there is none."""
        value = self.table.get(key, [])
        if isinstance(value, list) and all(isinstance(text, str) and text for text in value):
            return tuple(value)
        self.fault(key, f"{key} must be a list of texts, not {shown_value(value)}", f"for example {key} = {example}")
        return ()

    def instant(self, key: str) -> datetime | None:
        """Return an instant with its zone; None where there is none."""
        value = self.table.get(key)
        if value is None or (isinstance(value, datetime) and value.tzinfo is not None):
            return None if value is None else value.astimezone(UTC)
        shown = value.isoformat() if isinstance(value, date | time) else shown_value(value)
        problem = f"{key} must be an instant with its zone, not {shown}"
        self.fault(key, problem, f"without quotes, for example {key} = 2027-01-31T00:00:00Z")
        return None

    def choice(self, key: str, kind: type[Choice], default: Choice | None = None) -> Choice | None:
        """Return one of a closed list; None where it is none of them."""
        value = self.table.get(key, default)
        allowed = [member.value for member in kind]
        if isinstance(value, str) and value in allowed:
            return kind(value)
        problem = f"{key} is missing" if value is None else f"{key} cannot be {shown_value(value)}"
        self.fault(key, problem, one_of(allowed, value))
        return None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value and abs(value) < 1e9


def shown_value(value: object) -> str:
    """Show a value as it is written in a file, cut short."""
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."

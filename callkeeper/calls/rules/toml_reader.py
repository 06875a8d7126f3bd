"""Typed reading of a TOML file. Every wrong key or value becomes a fault at its line, and reading continues.

A fault tells the author what to repair: the line, the rule, what is wrong, and what is allowed.

The standard parser gives no line numbers. The scanner here reads text that the parser has accepted, so it can rely on
the syntax and only follows brackets, strings and line ends. A place is named by its path, for example ``("rule", 2,
"when", "green")``. Tables in a list, and elements of a list, are counted from 0.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time
from enum import StrEnum
from types import MappingProxyType
from typing import Any, TypeVar

from callkeeper.calls.institutions import nearest

Path = tuple[str | int, ...]

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_BLANK = re.compile(r"[ \t]*")
_EMPTY = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SCALAR = re.compile(r"[^,\]}#\r\n]*")
_TEXTS = (
    re.compile(r'"""(?:[^\\]|\\.)*?"{3,5}', re.DOTALL),
    re.compile(r"'''.*?'{3,5}", re.DOTALL),
    re.compile(r'"(?:[^"\\]|\\.)*"'),
    re.compile(r"'[^']*'"),
)
_MOST_LISTED = 20
"""How many words are listed, at most, beside the one that was probably meant: there are sixty facts."""


class Lines:
    """The line numbers in a valid TOML file."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._line = 1
        self._counted_to = 0
        self._lines: dict[Path, int] = {}
        self._lists: dict[Path, int] = {}
        self._scan()

    def find(self, *path: str | int) -> int:
        """Return the line of a place. If it is not written, return the line of what contains it, or 1."""
        while path and path not in self._lines:
            path = path[:-1]
        return self._lines.get(path, 1)

    def __iter__(self) -> Iterator[tuple[Path, int]]:
        return iter(self._lines.items())

    def _scan(self) -> None:
        table: Path = ()
        self._skip(_EMPTY)
        while self._at < len(self._text):
            table = self._header() if self._text[self._at] == "[" else self._pair(table)
            self._skip(_EMPTY)

    def _header(self) -> Path:
        """Read ``[table]`` or ``[[list]]``. Return the path of the keys below it."""
        is_list = self._text.startswith("[[", self._at)
        self._at += 2 if is_list else 1
        path: Path = ()
        line = self._line_here()
        keys = self._keys()
        for n, key in enumerate(keys):
            path = (*path, key)
            is_last = n == len(keys) - 1
            if is_last and is_list:
                self._lists[path] = self._lists.get(path, -1) + 1
                self._note(path, line)
            if path in self._lists:
                path = (*path, self._lists[path])
        self._note(path, line)
        self._at += 2 if is_list else 1
        return path

    def _pair(self, table: Path) -> Path:
        """Read ``key = value``. Return the table that is still open."""
        path, line = table, self._line_here()
        for key in self._keys():
            path = (*path, key)
            self._note(path, line)
        self._skip(_BLANK)
        self._at += 1  # the equals sign
        self._value(path)
        return table

    def _keys(self) -> list[str]:
        """Read a key that may be dotted and quoted."""
        keys: list[str] = []
        while True:
            self._skip(_BLANK)
            if self._text[self._at] in "\"'":
                keys.append(_plain(self._take_text()))
            else:
                keys.append(self._skip(_BARE))
            self._skip(_BLANK)
            if self._text[self._at] != ".":
                return keys
            self._at += 1

    def _value(self, path: Path) -> None:
        self._skip(_BLANK)
        match self._text[self._at]:
            case "[":
                self._members(path, "]")
            case "{":
                self._members(path, "}")
            case '"' | "'":
                self._take_text()
            case _:
                self._skip(_SCALAR)

    def _members(self, path: Path, end: str) -> None:
        """Read a list or an inline table."""
        self._at += 1
        n = 0
        while True:
            self._skip(_EMPTY)
            if self._text[self._at] == end:
                self._at += 1
                return
            if self._text[self._at] == ",":
                self._at += 1
            elif end == "]":
                self._note((*path, n), self._line_here())
                self._value((*path, n))
                n += 1
            else:
                self._pair(path)

    def _take_text(self) -> str:
        for pattern in _TEXTS:
            if found := pattern.match(self._text, self._at):
                self._at = found.end()
                return found.group()
        raise AssertionError("the parser accepted a text that does not end")

    def _skip(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._at)
        assert found is not None  # noqa: S101  (every pattern but a bare key matches nothing too)
        self._at = found.end()
        return found.group()

    def _line_here(self) -> int:
        self._line += self._text.count("\n", self._counted_to, self._at)
        self._counted_to = self._at
        return self._line

    def _note(self, path: Path, line: int) -> None:
        self._lines.setdefault(path, line)


def _plain(quoted: str) -> str:
    """Return the text of a quoted key. Escapes are kept; the place of such a key is then that of its table."""
    return quoted[1:-1]


Choice = TypeVar("Choice", bound=StrEnum)


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One fault. ``line`` counts from 1.

    ``rule`` is the name of its rule, or ``number 3`` if that has no name. ``noun`` is the kind of entry if it is no
    rule.
    """

    line: int
    problem: str
    allowed: str = ""
    rule: str | None = None
    noun: str = "rule"

    def __str__(self) -> str:
        """Describe the fault in one line, without the file's name."""
        where = f"{self.line}: " + (f"{self.noun} {self.rule}: " if self.rule else "")
        return f"{where}{self.problem}" + (f"; {self.allowed}" if self.allowed else "")


class RulesError(Exception):
    """A rules file that cannot be used. ``faults`` lists everything that is wrong, by line."""

    def __init__(self, name: str, faults: Iterable[Fault]) -> None:
        self.name = name
        self.faults = tuple(sorted(faults))
        super().__init__("\n".join(self.lines))

    @classmethod
    def unreadable(cls, name: str, why: str, remedy: str) -> "RulesError":
        """Return the error for a file that cannot be read."""
        return cls(name, [Fault(1, f"cannot be read ({why})", remedy)])

    @property
    def lines(self) -> list[str]:
        """Return the faults as ``file:line: what is wrong; what is allowed``, the form that editors follow."""
        return [f"{self.name}:{fault}" for fault in self.faults]


def one_of(allowed: Iterable[str], wrong: object = None) -> str:
    """Return what is allowed, and the entry most similar to what was written, alone if a list would bury it."""
    words = list(allowed)
    close = nearest(wrong, words) if isinstance(wrong, str) else None
    if close is None:
        return f"allowed: {', '.join(words)}"
    meant = f"did you mean {close!r}?"
    return meant if len(words) > _MOST_LISTED else f"{meant} allowed: {', '.join(words)}"


@dataclass(slots=True)
class Faults:
    """Collects faults."""

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

    ``label`` is its name in messages. ``rule`` is the rule (or other ``noun``) that it belongs to.
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

    def within(self, key: str | int, table: Mapping[str, Any] = MappingProxyType({})) -> "Section":
        """Return what one of the table's keys holds, to note faults in it: a table, or a list with an empty ``table``."""
        return replace(self, table=table, path=(*self.path, key), label=str(key))

    def only(self, allowed: Iterable[str]) -> None:
        keys = tuple(allowed)
        for key in self.table:
            if key not in keys:
                self.fault(key, f"{self.label} has no key {key!r}", one_of(keys, key))

    def section(self, key: str, allowed: Iterable[str]) -> "Section":
        """Return a table within this one; an empty one if it is missing or not a table."""
        value = self.table.get(key, {})
        if not isinstance(value, dict):
            self.fault(key, f"{key} must be a table", f"write [{key}]")
            value = {}
        section = Section(self.faults, value, (*self.path, key), f"[{key}]")
        section.only(allowed)
        return section

    def flag(self, key: str, *, default: bool) -> bool:
        value = self.table.get(key, default)
        if isinstance(value, bool):
            return value
        self.fault(key, f"{key} must be true or false, not {shown_value(value)}", "write it without quotes")
        return default

    def number(self, key: str, default: float, *, least: float) -> float:
        """Return a number of at least ``least``."""
        value = self.table.get(key, default)
        if _is_number(value) and value >= least:
            return float(value)
        self.fault(key, f"{key} must be a number, not {shown_value(value)}", f"allowed: {least:g} or more")
        return default

    def count(self, key: str, default: int, *, most: int) -> int:
        """Return a whole number from 0 to ``most``."""
        value = self.table.get(key, default)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most:
            return value
        self.fault(key, f"{key} must be a whole number, not {shown_value(value)}", f"allowed: 0 to {most}")
        return default

    def numbers(self, key: str, example: str) -> tuple[float, ...] | None:
        """Return a list of numbers; None if it is missing or wrong."""
        value = self.table.get(key)
        if isinstance(value, list) and all(_is_number(number) for number in value):
            return tuple(float(number) for number in value)
        wrong = f"must be a list of numbers, not {shown_value(value)}"
        problem = f"{key} is missing from {self.label}" if value is None else f"{key} {wrong}"
        self.fault(key, problem, f"for example {key} = {example}")
        return None

    def text(self, key: str, why: str) -> str:
        """Return a required text that is not blank. ``why`` says what it is for."""
        value = self.table.get(key)
        if isinstance(value, str) and value.strip():
            return value
        problem = f"{key} is missing" if value is None else f"{key} must be a text that is not blank"
        self.fault(key, problem, why)
        return ""

    def texts(self, key: str, example: str) -> tuple[str, ...]:
        """Return a list of texts, empty if missing."""
        value = self.table.get(key, [])
        if isinstance(value, list) and all(isinstance(text, str) and text for text in value):
            return tuple(value)
        self.fault(key, f"{key} must be a list of texts, not {shown_value(value)}", f"for example {key} = {example}")
        return ()

    def instant(self, key: str) -> datetime | None:
        """Return an instant with its zone; None if missing."""
        value = self.table.get(key)
        if value is None or (isinstance(value, datetime) and value.tzinfo is not None):
            return None if value is None else value.astimezone(UTC)
        shown = value.isoformat() if isinstance(value, date | time) else shown_value(value)
        problem = f"{key} must be an instant with its zone, not {shown}"
        self.fault(key, problem, f"without quotes, for example {key} = 2027-01-31T00:00:00Z")
        return None

    def choice(self, key: str, kind: type[Choice], default: Choice | None = None) -> Choice | None:
        """Return a member of a closed list; None if the value is not in it."""
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
    """Return a value as it is written in a file, shortened."""
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."

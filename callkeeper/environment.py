"""Environment variables: each with its meaning, an example and the function that reads it.

All are read before any is used, so that one start names every fault at once. A problem never repeats the value: it may
be a secret, or a secret typed into the wrong place.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar, cast

import msgspec

T = TypeVar("T")
S = TypeVar("S")


class Fault(NamedTuple):
    """One variable that is missing or wrong."""

    name: str
    problem: str
    example: str


class SettingsWrong(Exception):
    """The environment cannot be used; lists every fault with its name, the reason and an example."""

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        lines = [f"  {name}: {problem}\n    for example: {name}={example}" for name, problem, example in faults]
        super().__init__("the settings are incomplete or wrong:\n" + "\n".join(lines))
        self.faults = faults


class Variable(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One environment variable.

    Attributes:
        parse: Reads the stripped, non-empty text; raises ValueError with a problem that does not repeat it.
        default: What an unset or blank variable stands for; unused if ``is_required``.
        is_secret: Whoever has the value can act as us, or read what only we may read.
    """

    name: str
    meaning: str
    example: str
    parse: Callable[[str], T]
    default: T | None = None
    is_required: bool = False
    is_secret: bool = False


class Reader:
    """Takes variables out of an environment and collects the faults."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._faults: list[Fault] = []

    def required(self, variable: Variable[T]) -> T:
        """Return a variable's value; a missing one is a fault."""
        if not self._text(variable):
            self.fault(variable, "is required")
        return cast("T", self.optional(variable))

    def optional(self, variable: Variable[T]) -> T | None:
        """Return a variable's value, or its default when it is unset or blank."""
        text = self._text(variable)
        if not text:
            return variable.default
        try:
            return variable.parse(text)
        except ValueError as problem:
            self.fault(variable, str(problem))
            return variable.default

    def defaulted(self, variable: Variable[T]) -> T:
        """Return the value of a variable that has a default."""
        return cast("T", self.optional(variable))

    def is_set(self, variable: Variable[Any]) -> bool:
        """Tell whether a variable holds anything but blanks."""
        return bool(self._text(variable))

    def fault(self, variable: Variable[Any], problem: str) -> None:
        """Note what is wrong with a variable."""
        self._faults.append(Fault(variable.name, problem, variable.example))

    def finish(self, record: S) -> S:
        """Return a record made of what was read.

        Raises:
            SettingsWrong: Anything was missing or wrong.
        """
        if self._faults:
            raise SettingsWrong(tuple(self._faults))
        return record

    def _text(self, variable: Variable[Any]) -> str:
        return self._environ.get(variable.name, "").strip()


class _Asked(Reader):
    """Notes which variables a process asks for; all of them are there, with their examples."""

    def __init__(self, variables: Iterable[Variable[Any]]) -> None:
        super().__init__({variable.name: variable.example for variable in variables})
        self.required_names: set[str] = set()
        self.names: set[str] = set()

    def required(self, variable: Variable[T]) -> T:
        """Note a variable that must be set."""
        self.required_names.add(variable.name)
        return super().required(variable)

    def optional(self, variable: Variable[T]) -> T | None:
        """Note a variable that may be set."""
        self.names.add(variable.name)
        return super().optional(variable)


def asked_for(
    variables: Iterable[Variable[Any]], read: Callable[[Reader], Any], *, unless: frozenset[str] = frozenset()
) -> dict[str, str]:
    """Return ``x`` (required) or ``o`` (optional) for each variable that a process reads.

    Args:
        variables: All variables that exist.
        read: Reads the settings of the process.
        unless: Variables that are required only together with others.
    """
    reader = _Asked(variables)
    read(reader)
    return {name: "x" if name in reader.required_names - unless else "o" for name in reader.names}

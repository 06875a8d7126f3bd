"""Settings as records whose fields name an environment variable, the function that reads it and an example.

All variables are read before any is used, so a failed start lists all faults at once. A problem never repeats the
value, because it may be a secret, also one that was typed into the wrong variable.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from difflib import SequenceMatcher, get_close_matches
from typing import Any, Final, NamedTuple, Self, TypeVar, cast
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import fields, replace

from callkeeper.service.config import is_loopback

T = TypeVar("T")


PREFIX: Final = "CALLKEEPER"
REMOVED: Final = "CALLKEEPER_REMOVED_SECRETS"
"""Set by a process that restarts itself: the names of the secrets that it removed."""

_SERVICE_LINK: Final = re.compile(r"\w+_SERVICE_(HOST|PORT(_\w+)?)|\w+_PORT_\d+_[A-Z]+(_[A-Z]+)?")
"""Kubernetes sets such variables in every pod. Those of a service called ``callkeeper-web`` have our prefix."""

_PUBLISHED: Final = re.compile(r"sandbox-(0123456789abcdef01234567|access-token|password)")
"""The credentials of deploy/sandbox.env. They are taken only with a service on this machine, the stand-in."""

_TYPO: Final = 0.88
"""How similar two names are of which one is the other misspelled (``SequenceMatcher.ratio``). No two settings are."""


class SettingsFault(NamedTuple):
    """One variable that is missing or wrong."""

    name: str
    problem: str
    example: str


class SettingsWrong(Exception):
    """The environment cannot be used; lists every fault with its name, the reason and an example."""

    def __init__(self, problems: Mapping[str, str], variables: Mapping[str, "Variable"]) -> None:
        self.faults = tuple(SettingsFault(name, problem, variables[name].example) for name, problem in problems.items())
        lines = [f"  {name}: {problem}\n    for example: {name}={example}" for name, problem, example in self.faults]
        super().__init__("the settings are incomplete or wrong:\n" + "\n".join(lines))


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    """One environment variable.

    Attributes:
        parse: Reads the stripped, non-empty text; raises ValueError with a problem that does not repeat it.
        default: The value of an unset or blank variable; unused if ``is_required``.
        is_secret: The value gives access to something.
    """

    name: str
    parse: Callable[[str], Any]
    example: str
    default: Any = None
    is_required: bool = False
    is_secret: bool = False

    def read(self, environ: Mapping[str, str], problems: dict[str, str]) -> Any:
        """Return the value. If the variable is missing or wrong, add a problem and return the default."""
        text = environ.get(self.name, "").strip()
        if self.is_required and not text:
            problems[self.name] = "is required"
        if self.is_secret and _PUBLISHED.search(text) and not _is_service_here(environ):
            problems[self.name] = "is published in deploy/sandbox.env; use a secret of your own"
        try:
            return self.parse(text) if text else self.default
        except ValueError as error:
            problems[self.name] = str(error)
            return self.default

    def variables(self) -> dict[str, Self]:
        return {self.name: self}


class NestedSettings(msgspec.Struct, frozen=True):
    """A record within a record. With ``only_if`` it is read only if that variable is set, else it is None."""

    section: type["SettingsSection"]
    only_if: str = ""

    def read(self, environ: Mapping[str, str], problems: dict[str, str]) -> Any:
        is_absent = self.only_if and not environ.get(self.only_if, "").strip()
        return None if is_absent else self.section.read(environ, problems)

    def variables(self) -> dict[str, Variable]:
        """Return the record's variables, by name. If the record is optional, none of them is required."""
        found = self.section.variables()
        return {name: replace(each, is_required=False) for name, each in found.items()} if self.only_if else found


def _is_service_here(environ: Mapping[str, str]) -> bool:
    try:
        return is_loopback(urlsplit(environ.get("CALLKEEPER_SERVICE_URL", "")).hostname or "")
    except ValueError:
        return False


def required(name: str, parse: Callable[[str], T], example: str, *, secret: bool = False) -> T:
    """Declare a field whose variable must be set."""
    return cast("T", Variable(name=name, parse=parse, example=example, is_required=True, is_secret=secret))


def optional(name: str, parse: Callable[[str], T], example: str, *, secret: bool = False) -> T | None:
    """Declare a field that is None if its variable is unset."""
    return cast("T", Variable(name=name, parse=parse, example=example, is_secret=secret))


def defaulted(name: str, parse: Callable[[str], T], example: str, default: T, *, secret: bool = False) -> T:
    """Declare a field whose variable has a default."""
    return cast("T", Variable(name=name, parse=parse, example=example, default=default, is_secret=secret))


def part(section: type[T], *, only_if: str = "") -> T:
    """Declare a field that is itself a record."""
    return cast("T", NestedSettings(cast("type[SettingsSection]", section), only_if))


class SettingsSection(msgspec.Struct, frozen=True, kw_only=True):
    """A record that can be read from the environment. Every field is `required`, `optional`, `defaulted` or a `part`."""

    @classmethod
    def load(cls, environ: Mapping[str, str]) -> Self:
        """Read the record.

        Raises:
            SettingsWrong: Something is missing or wrong; lists all of it.
        """
        problems: dict[str, str] = {}
        settings = cls.read(environ, problems)
        if problems:
            raise SettingsWrong(problems, cls.variables())
        return settings

    @classmethod
    def read(cls, environ: Mapping[str, str], problems: dict[str, str]) -> Self:
        """Read the record and add what is wrong to ``problems``, by variable; wrong values are None or their default."""
        settings = cls(**{field.name: field.default.read(environ, problems) for field in fields(cls)})
        for name, problem in settings.contradictions():
            problems.setdefault(name, problem)
        return settings

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield variables that contradict others, each with its problem."""
        yield from ()

    @classmethod
    def variables(cls) -> dict[str, Variable]:
        """Return every variable that the record reads, by name."""
        found: dict[str, Variable] = {}
        for field in fields(cls):
            found |= field.default.variables()
        return found


def unknown_variables(environ: Mapping[str, str], known: Collection[str]) -> list[tuple[str, str | None]]:
    """Return variables with our prefix that no setting has, each with the most similar name that exists.

    Values are only compared with the form of a Kubernetes service link.
    """
    short = {name.removeprefix(f"{PREFIX}_"): name for name in known}
    found = []
    for name in sorted(environ.keys() - {*known, REMOVED}):
        prefix, _, rest = name.upper().partition("_")
        is_link = _SERVICE_LINK.fullmatch(name) or environ[name].startswith(("tcp://", "udp://"))
        if get_close_matches(prefix, [PREFIX], cutoff=0.85) and not is_link:
            nearest = get_close_matches(rest, short, n=1)
            found.append((name, short[nearest[0]] if nearest else None))
    return found


def misspelled_variables(environ: Mapping[str, str], known: Collection[str]) -> list[tuple[str, str]]:
    """Return the unknown variables that are a setting but for a character or two, each with that setting.

    The other unknown ones may be settings of a newer release, of which a rollback knows nothing.
    """
    found = []
    for name, nearest in unknown_variables(environ, known):
        if nearest is not None:
            short, meant = name.upper().partition("_")[2], nearest.removeprefix(f"{PREFIX}_")
            if SequenceMatcher(None, short, meant).ratio() > _TYPO:
                found.append((name, nearest))
    return found

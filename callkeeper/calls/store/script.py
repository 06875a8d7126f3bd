"""A Lua script in ``callkeeper/calls/lua``: its first lines name what it is made of and what it takes.

::

    -- PARTS: notes                        it follows parts/prelude.lua, as all do, and parts/notes.lua
    -- KEYS: item, due                     the locals item_key and due_key
    -- ARGV: clock, member, rest...        the locals clock and member; rest is the index in ARGV of the first of the rest

Callers pass them by name, so nothing has to count positions.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final, Literal, NamedTuple

from callkeeper.calls.record import CHECK_LIMIT
from callkeeper.calls.store.keys import CHANGES_KEPT, MOST_TOMBSTONES, Keys

ScriptName = Literal[
    "push",
    "note",
    "claim",
    "keep",
    "save",
    "leave",
    "merge",
    "pulse",
    "breaker_report",
    "enlist",
    "probe",
    "retry",
    "check_turn",
    "add_figures",
    "tidy",
    "lead",
    "permits",
    "lower_rate",
    "forget_load",
    "pause",
    "expire_archived",
]
"""The scripts without those of the token, which share numbers with Python."""

Arg = str | bytes | int | float

_LUA: Final = files("callkeeper.calls") / "lua"
_LOCAL: Final = re.compile(r"^local (?:function )?(\w+)", re.MULTILINE)


class Script:
    """A script that runs on the keys of one prefix.

    Filled in here: ``clock``, ``prefix``, every key that is named like an attribute of `Keys`, and the item, inbox and
    trail of the ``member``. Callers pass the rest.

    Args:
        keys: The names of our keys.
        name: The script's file.
        constants: Numbers that it shares with Python.
        folder: Where the files are.

    Raises:
        ValueError: Its first lines do not name what it takes, or use a name twice.
    """

    def __init__(
        self, keys: Keys, name: str, *, constants: Mapping[str, int] | None = None, folder: Traversable = _LUA
    ) -> None:
        self.name = name
        read = _read(name, tuple((constants or {}).items()), folder)  # type: ignore[arg-type]  # a path is hashable
        self._keys, self._args, self._rest, self.source = read
        taken = {*self._keys, *self._args}
        own = {"prefix": keys.prefix, **{f"{name}_key": key for name, key in vars(keys).items()}}
        of_member = {"item_key": keys.item, "inbox_key": keys.inbox, "trail_key": keys.trail}
        self._own = {name: key for name, key in own.items() if name in taken}
        self._of_member = [(name, key_of) for name, key_of in of_member.items() if name in taken]
        self._asked = taken - self._own.keys() - of_member.keys() - {"clock"}

    def arguments(self, clock: Arg, given: Mapping[str, Arg], rest: Sequence[Arg] = ()) -> tuple[list[str], list[Arg]]:
        """Return KEYS and ARGV.

        ``clock`` is the present in ms, or "" for Redis's own.

        Raises:
            TypeError: Something is missing, or the script does not take it.
        """
        if given.keys() != self._asked or (rest and not self._rest):
            missing, unknown = sorted(self._asked - given.keys()), sorted(given.keys() - self._asked)
            raise TypeError(f"{self.name}.lua: missing {missing}, unknown {unknown}, {len(rest)} more")
        values = {"clock": clock, **self._own, **given}
        for name, key_of in self._of_member:
            values[name] = key_of(str(given["member"]))
        keys = [str(values[name]) for name in self._keys]
        return keys, [*[values[name] for name in self._args], *rest]


class _Read(NamedTuple):
    """What a script takes, and its source. ``rest``: the name of what may be repeated; empty if nothing may."""

    keys: tuple[str, ...]
    args: tuple[str, ...]
    rest: str
    source: str


@cache
def _read(script: str, constants: tuple[tuple[str, int], ...], folder: Traversable) -> _Read:
    """Read a script. Cached: each command and each connection would read all files again."""
    own = (folder / f"{script}.lua").read_text()
    named = re.search("^-- PARTS: (.+)$", own, re.MULTILINE)
    names = ["prelude", *(named[1].split(", ") if named else [])]
    parts = [*((folder / "parts" / f"{name}.lua").read_text() for name in names), own]
    keys = tuple(f"{name}_key" for name in _listed("KEYS", parts, script))
    args = _listed("ARGV", parts, script)
    rest = args.pop().removesuffix("...") if args[-1].endswith("...") else ""
    taken = [*keys, *args, *([rest] if rest else [])]
    if len(set(taken)) < len(taken) or not set(taken).isdisjoint(_LOCAL.findall("\n".join(parts[:-1]))):
        raise ValueError(f"{script}.lua names something twice, or hides a local of the files before it")
    values = [*(f"KEYS[{n}]" for n, _ in enumerate(keys, 1)), *(f"ARGV[{n}]" for n, _ in enumerate(args, 1))]
    values += [str(len(args) + 1)] if rest else []
    numbers = {"CHECK_LIMIT": CHECK_LIMIT, "MOST_TOMBSTONES": MOST_TOMBSTONES, "CHANGES_KEPT": CHANGES_KEPT}
    shared = [f"local {name} = {number}" for name, number in (*numbers.items(), *constants)]
    return _Read(
        keys, tuple(args), rest, "\n".join([*shared, f"local {', '.join(taken)} = {', '.join(values)}", *parts])
    )


def _listed(what: str, parts: Sequence[str], script: str) -> list[str]:
    """Return the names after ``-- KEYS:`` or ``-- ARGV:``, which may go on in further lines.

    Raises:
        ValueError: There is no such line, or more than one, or something else in it.
    """
    found = re.findall(rf"^-- {what}: ((?:.*,\n--  +)*.*)$", "\n".join(parts), re.MULTILINE)
    names = re.split(r",\s*(?:--\s+)?", found[0]) if len(found) == 1 else [""]
    if not all(re.fullmatch(r"[a-z_]+(\.\.\.)?", name) for name in names):
        raise ValueError(f"{script}.lua does not name its {what} in its first lines")
    return names

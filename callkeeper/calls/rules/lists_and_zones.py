"""Reads what a rules file says of its surroundings: lists of persons and numbers in files beside it, and time zones."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

from callkeeper.calls.person_lists import NamedLists, Numbers
from callkeeper.calls.rules.book import LOCAL, InList, Rule, tests_in
from callkeeper.calls.rules.condition_parsing import LIST_NAME
from callkeeper.calls.rules.toml_reader import Fault, Faults, Section, one_of, shown_value

MOST_BYTES: Final = 16 * 2**20
"""The largest file of a list."""

Entries = Mapping[str, tuple[str, ...]]
"""The lines of each list, by its name."""


def read_lists(top: Section, folder: Path | None) -> Entries:
    """Return the lists that ``[lists]`` names. Their entries are personal: no message shows one.

    Without a ``folder`` no list can be read from a file.
    """
    table = top.table.get("lists", {})
    if not isinstance(table, dict):
        top.fault("lists", "lists must be a table", "write [lists]")
        return {}
    section = top.within("lists", table)
    found = {}
    for name, file in table.items():
        if not LIST_NAME.fullmatch(name):
            section.fault(
                name, f"{name!r} cannot be the name of a list", "small letters, digits, - and _; a letter first"
            )
        elif not isinstance(file, str) or not file or Path(file).is_absolute() or ".." in Path(file).parts:
            section.fault(
                name, f"{name} cannot be {shown_value(file)}", f'a file beside the rules: {name} = "{name}.txt"'
            )
        else:
            found[name] = _lines(section, name, folder, file)
    return found


def _lines(section: Section, name: str, folder: Path | None, file: str) -> tuple[str, ...]:
    try:
        if folder is None:
            raise FileNotFoundError
        text = (folder / file).read_bytes()[: MOST_BYTES + 1]
        if len(text) > MOST_BYTES:
            section.fault(name, f"{file!r} is larger than {MOST_BYTES >> 20} MiB", "a list is read into memory")
            return ()
        lines = [line.partition("#")[0].strip() for line in text.decode("utf-8-sig").splitlines()]
        return tuple(line for line in lines if line)
    except UnicodeDecodeError:
        section.fault(name, f"{file!r} is not UTF-8", "save the file as UTF-8")
    except OSError as error:
        section.fault(
            name, f"{file!r} cannot be read ({error.strerror or 'no such file'})", "put it beside the rules file"
        )
    return ()


def digest_of(lists: Entries) -> bytes:
    """Return what the digest of the rules adds for their lists; empty if there are none."""
    if not lists:
        return b""
    return hashlib.sha256(repr(sorted(lists.items())).encode()).digest()


def lists_asked_for(rules: Sequence[Rule], lists: Entries, faults: Faults) -> NamedLists:
    """Return the lists that rules ask about. A name that is no list is a fault."""
    persons: dict[str, frozenset[str]] = {}
    numbers: dict[str, Numbers] = {}
    for rule in rules:
        for fact, test in rule.when:
            for asked in tests_in(test, InList):
                if asked.is_pattern:
                    numbers[asked.name] = Numbers.of([asked.name])
                elif asked.name not in lists:
                    remedy = one_of(lists, asked.name) if lists else f'write [lists] {asked.name} = "{asked.name}.txt"'
                    faults.found.append(Fault(rule.line, f"there is no list {asked.name!r}", remedy, repr(rule.name)))
                elif fact == "person":
                    persons[asked.name] = frozenset(lists[asked.name])
                else:
                    numbers[asked.name] = Numbers.of(lists[asked.name])
    return NamedLists(persons, numbers)


def read_zone(zone: Section) -> ZoneInfo | None:
    """Return the zone of one ``[[zone]]``; None if there is none of that name."""
    name = zone.text("name", 'for example name = "America/Chicago"')
    if not name:
        return None
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        zone.fault("name", f"there is no time zone {name!r}", 'a name of the IANA database: name = "America/Chicago"')
        return None


def zone_faults(rules: Sequence[Rule], zones: Mapping[str, ZoneInfo]) -> Iterator[Fault]:
    """Yield a fault for each rule that asks for the hour or the weekday of an institution whose zone is not known."""
    for rule in rules:
        asked = sorted(LOCAL & {fact for fact, _ in rule.when})
        without_zone = sorted((rule.institutions or {""}) - zones.keys()) if "" not in zones else []
        if asked and without_zone:
            of = f"of {', '.join(without_zone)}" if rule.institutions else "of every institution"
            remedy = 'write [[zone]] name = "America/Chicago"'
            yield Fault(rule.line, f"{asked[0]} needs the time zone {of}", remedy, repr(rule.name))

"""An incident: one problem of the installation, of one institution or of all, and how equal ones are merged."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from callkeeper.calls.acknowledgement import Acknowledgement
from callkeeper.calls.causes import CAUSES, IncidentKind, Weight


@dataclass(frozen=True, slots=True)
class Incident:
    """One problem: its cause, what is seen of it now, for which institution, and since when if known.

    ``detail`` are whole sentences, which stand before what the cause says. ``headline`` and ``remedy`` replace its title and
    what to do. ``institutions``: those of several equal incidents that were merged into this one. ``last_error``: its
    words, if requests fail. ``acknowledged``: by whom, if people asked not to be told of it again. ``limited_detail``:
    the detail for people who are limited to institutions, if ``detail`` names others. ``parts``: the faults that it is
    made of, if its kind has several. People are told of each.
    """

    kind: IncidentKind
    detail: str = ""
    institution_key: str = ""
    since: datetime | None = None
    institutions: tuple[str, ...] = ()
    last_error: str = ""
    acknowledged: Acknowledgement | None = None
    limited_detail: str = ""
    headline: str = ""
    remedy: str = ""
    parts: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        return self.headline or CAUSES[self.kind].title

    @property
    def advice(self) -> str:
        """Return what is seen and what to do, in a few sentences."""
        return f"{self.detail} {self.remedy or CAUSES[self.kind].do}".strip()

    @property
    def section(self) -> str:
        """Return the anchor of its section in docs/operations.md."""
        return CAUSES[self.kind].section

    @property
    def known(self) -> str:
        """Return who has acknowledged it, in a line; empty if nobody has."""
        return self.acknowledged.words if self.acknowledged is not None else ""

    @property
    def weight(self) -> Weight:
        """Return how much it matters. Refused pushes of one institution can wait: its calls are found by the queue."""
        if self.kind is IncidentKind.PUSHES_REFUSED and (self.institution_key or self.institutions):
            return Weight.TICKET
        return CAUSES[self.kind].weight


MERGED_FROM: Final = 3
"""If at least this many institutions have the same trouble, it is one incident."""


def merged(found: Iterable[Incident]) -> list[Incident]:
    """Return incidents with equal ones of many institutions as one, in the place of the first."""
    equal: dict[object, list[Incident]] = {}
    for incident in found:
        same = (incident.kind, incident.title, bool(incident.institution_key), incident.known)
        equal.setdefault(same, []).append(incident)
    together: list[Incident] = []
    for group in equal.values():
        keys = tuple(sorted(incident.institution_key for incident in group))
        if len(group) < MERGED_FROM or not all(keys):
            together += group
            continue
        since = min((incident.since for incident in group if incident.since is not None), default=None)
        shared = shared_text((incident.institution_key, incident.detail) for incident in group)
        detail = f"{len(keys)} institutions: {named(keys)}. {shared}".strip()
        last_error = named({incident.last_error for incident in group if incident.last_error}, most=2)
        one = replace(
            group[0], detail=detail, institution_key="", since=since, institutions=keys, last_error=last_error
        )
        together.append(replace(one, parts=parts_of(group)))
    return together


def shared_text(texts: Iterable[tuple[str, str]]) -> str:
    """Return what is said of several institutions. If it differs, it is what is said of the first one, and says so."""
    (key, first), *others = texts
    return first if all(text == first for _, text in others) else f"Of {key}: {first}"


def parts_of(found: Iterable[Incident]) -> tuple[str, ...]:
    """Return the faults that incidents are made of, each once."""
    return tuple(sorted({part for one in found for part in one.parts}))


def folded(found: Iterable[Incident]) -> list[Incident]:
    """Return incidents with those of one cause and place as one: with the details and parts of all, since the first."""
    by_place: dict[tuple[IncidentKind, str], Incident] = {}
    for one in (replace(one, parts=one.parts or _fault_in(one)) for one in found):
        first = by_place.setdefault((one.kind, one.institution_key), one)
        if first is one:
            continue
        first = by_place[one.kind, one.institution_key] = replace(first, parts=parts_of((first, one)))
        if one.detail not in first.detail:
            since = min((at for at in (first.since, one.since) if at is not None), default=None)
            by_place[one.kind, one.institution_key] = replace(
                first, detail=f"{first.detail} {one.detail}".strip(), since=since, remedy="", limited_detail=""
            )
    return list(by_place.values())


def _fault_in(one: Incident) -> tuple[str, ...]:
    """Return the fault that an incident of a kind with several is."""
    return (one.title,) if one.kind is IncidentKind.INSTITUTION_FAILS else ()


_NAMED: Final = 8
"""How many institutions a line names."""


def named(keys: Iterable[str], most: int = _NAMED) -> str:
    """Return a list of institutions for people, cut where it is long."""
    names = sorted(keys)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more

"""Finds what differs in what came of a call, and names the cause: the first difference in time, in as few words as tell it.

What differs later follows from that, mostly, and is not told. ``show`` has everything of one call, side by side.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import chain, pairwise
from typing import Any, Final

from tests.corpus.scenario import CallOutcome, Moment, Request

LAYERS: Final = ("fact", "ledger", "request", "step", "told", "instant")
"""What can differ. Where several do at once, the first ones of these are told: the others follow from them."""

MOST_TOLD: Final = 3
"""How many differences of a layer a cause names."""

_NUMBERS: Final = re.compile(r"\b[0-9a-f]{8}-[0-9a-f-]{27}\b|\b(?:v|alt)-\d+\b|\d+(?:\.\d+)?")


def cause_of(old: CallOutcome, new: CallOutcome, ignored: Sequence[str] = ()) -> str | None:
    """Return the cause of the differences between two outcomes; None if there are none but in layers that are ignored."""
    layers = [layer for layer in LAYERS if layer not in ignored]
    begun: list[str] = []
    for found in _by_moment(old, new):
        begun = _told(found, layers)
        if begun:
            break
    if not begun and "told" in layers:
        begun = _told(_of_views(old.told, new.told), layers)
    if not begun and "instant" in layers:
        begun = list(_instants(old.requests, new.requests))
    return "; ".join(begun) or None


def _told(found: Sequence[str], layers: Sequence[str]) -> list[str]:
    """Return the differences that tell the cause. Facts and ledgers belong together; the other layers follow from them."""
    by_layer = [_briefly([one for one in found if one.startswith(layer)]) for layer in layers]
    first = [*chain.from_iterable(by_layer[n] for n, layer in enumerate(layers) if layer in {"fact", "ledger"})]
    return first or next((some for some in by_layer if some), [])


def _briefly(found: Sequence[str]) -> list[str]:
    told = sorted(found)
    return told[:MOST_TOLD] + ([f"and {len(told) - MOST_TOLD} more"] if len(told) > MOST_TOLD else [])


def _by_moment(old: CallOutcome, new: CallOutcome) -> Iterator[list[str]]:
    """Yield what differs at each moment at which anything does, with the requests since the moment before."""
    were, are = _states(old.moments), _states(new.moments)
    is_same_order = [one.what for one in old.requests] == [one.what for one in new.requests]
    last = max((one.at_s for one in (*old.requests, *new.requests)), default=0.0)
    instants = sorted({0.0, *were, *are, last})
    was: dict[str, Any] = {}
    now: dict[str, Any] = {}
    for since_s, until_s in pairwise([-1.0, *instants]):
        was, now = were.get(until_s, was), are.get(until_s, now)
        found = [
            f"{_plain(name.replace('.', ' ', 1))}: {_change(was.get(name), now.get(name))}"
            for name in sorted(was.keys() | now.keys())
            if was.get(name) != now.get(name)
        ]
        if not is_same_order:
            found += _requests(_between(old.requests, since_s, until_s), _between(new.requests, since_s, until_s))
        if found:
            yield found


def _change(old: Any, new: Any) -> str:
    """Return in which direction a number differs, or both values."""
    if type(old) is type(new) is int:
        return "fewer" if new < old else "more"
    return f"{_plain(old)} -> {_plain(new)}"


def _states(moments: Iterable[Moment]) -> dict[float, dict[str, Any]]:
    """Return everything that was known, by the instant from which on it was."""
    states: dict[float, dict[str, Any]] = {}
    known: dict[str, Any] = {}
    for moment in moments:
        known = {name: value for name, value in (known | moment.changed).items() if value is not None}
        states[moment.at_s] = known
    return states


def _between(requests: Iterable[Request], since_s: float, until_s: float) -> list[str]:
    return [one.what for one in requests if since_s < one.at_s <= until_s]


def _requests(old: Sequence[str], new: Sequence[str]) -> list[str]:
    """Return which requests were sent more or less often; if none were, which came in another order."""
    were, are = Counter(old), Counter(new)
    found = [
        f"request {_plain(what)}: {were[what]} -> {are[what]}" for what in sorted(were | are) if were[what] != are[what]
    ]
    if not found and old != new:
        found = ["request: the same ones in another order"]
    return found


def _instants(old: Sequence[Request], new: Sequence[Request]) -> Iterator[str]:
    """Yield by how much requests that are the same were sent at other instants, by operation."""
    moved: dict[str, float] = {}
    for was, now in zip(old, new, strict=False):
        if was.at_s != now.at_s:
            name = was.what.split(" ", 1)[0]
            moved[name] = max(moved.get(name, 0.0), abs(now.at_s - was.at_s))
    for name, by_s in sorted(moved.items()):
        bound_s = next((bound_s for bound_s in (0.25, 1.0, 5.0, 30.0) if by_s <= bound_s), None)
        yield f"instant of {name}: by up to {bound_s} s" if bound_s else f"instant of {name}: by more than 30 s"


def _of_views(old: Any, new: Any, path: str = "told") -> list[str]:
    """Return what differs in what is told in the end: by path for records, by line for lists."""
    if isinstance(old, dict) and isinstance(new, dict):
        names = sorted(old.keys() | new.keys())
        return [one for name in names for one in _of_views(old.get(name), new.get(name), f"{path} {_plain(name)}")]
    if isinstance(old, list) and isinstance(new, list):
        were, are = ([_line(one) for one in some] for some in (old, new))
        gone, come = Counter(were) - Counter(are), Counter(are) - Counter(were)
        found = [f"{path} has no more: {one}" for one in sorted(gone)] + [
            f"{path} has now: {one}" for one in sorted(come)
        ]
        return found or ([f"{path}: other order or instants"] if old != new else [])
    return [] if old == new else [f"{path}: {_plain(old)} -> {_plain(new)}"]


def _line(one: Any) -> str:
    return _plain(one.get("text", one) if isinstance(one, dict) else one)


def _plain(value: Any) -> str:
    """Return a value without numbers and ids, so that equal causes have equal names."""
    if isinstance(value, dict):
        return "there"
    text = "-" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return _NUMBERS.sub("#", text)[:110]


def side_by_side(old: CallOutcome, new: CallOutcome, width: int = 78) -> Iterator[str]:
    """Yield what came of a call before and now, in two columns; lines that differ are marked."""
    were, are = list(_lines(old)), list(_lines(new))
    for tag, a, b, c, d in SequenceMatcher(None, were, are, autojunk=False).get_opcodes():
        left, right = were[a:b], are[c:d]
        for n in range(max(len(left), len(right))):
            one, other = left[n] if n < len(left) else "", right[n] if n < len(right) else ""
            yield f"{' ' if tag == 'equal' else '*'} {one[:width]:{width}} | {other[:width]}".rstrip()


def _lines(outcome: CallOutcome) -> Iterator[str]:
    requests = [(one.at_s, 0, f"request {one.what}: {one.status}") for one in outcome.requests]
    changes = [
        (moment.at_s, 1, f"{name} = {'-' if value is None else value}")
        for moment in outcome.moments
        for name, value in moment.changed.items()
    ]
    for at_s, _, text in sorted(requests + changes, key=lambda one: one[:2]):
        yield f"{at_s:8.2f} {text}"
    for line in outcome.told.get("story", ()):
        yield f"   story {line['at_s']:g} {line['text']}"
    for name, value in sorted({**outcome.told.get("call", {}), **outcome.told.get("outcomes", {})}.items()):
        yield f"    told {name}: {value}"

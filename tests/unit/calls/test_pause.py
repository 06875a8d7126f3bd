"""Pauses: which one applies, and what a weaker one would replace."""

import msgspec

from callkeeper.calls.pause import EVERYWHERE, Pause, Pauses, PauseScope, parse_pauses
from tests.unit.calls.specimens import NOW


def pause(scope: PauseScope = PauseScope.EFFECTS, operator: str = "ann") -> Pause:
    """Return a pause."""
    return Pause(scope=scope, operator=operator, because="a drill", at=NOW)


EFFECTS, ALL = pause(), pause(PauseScope.ALL, "bob")


def test_of_two_pauses_the_one_that_stops_more_applies() -> None:
    """Its own, if both stop the same."""
    assert Pauses().over("cu-1") is None
    assert Pauses({"cu-1": EFFECTS}).over("cu-1") == EFFECTS
    assert Pauses({"cu-1": EFFECTS}).over("cu-2") is None
    assert Pauses({"cu-1": EFFECTS, EVERYWHERE: ALL}).over("cu-1") == ALL
    assert Pauses({"cu-1": ALL, EVERYWHERE: EFFECTS}).over("cu-1") == ALL
    assert Pauses({EVERYWHERE: EFFECTS}).over("cu-1") == EFFECTS


def test_weaker_pause_does_not_replace_a_stronger_one_unnoticed() -> None:
    """Of the same scope only."""
    assert Pauses({"cu-1": ALL}).more_than("cu-1", PauseScope.EFFECTS) == ALL
    assert Pauses({"cu-1": ALL}).more_than("cu-1", PauseScope.ALL) is None
    assert Pauses({"cu-1": EFFECTS}).more_than("cu-1", PauseScope.EFFECTS) is None
    assert Pauses({EVERYWHERE: ALL}).more_than("cu-1", PauseScope.EFFECTS) is None
    assert Pauses({EVERYWHERE: ALL}).more_than(None, PauseScope.EFFECTS) == ALL


def test_pause_that_cannot_be_read_is_named() -> None:
    """Enrolls and rejects are stopped there, to be safe."""
    pauses = parse_pauses({b"cu-1": msgspec.json.encode(ALL), b"cu-2": b"{"}.items())
    assert pauses.by_institution["cu-1"] == ALL
    assert pauses.unreadable == ("cu-2",)
    stops = pauses.over("cu-2")
    assert stops is not None
    assert stops.scope is PauseScope.EFFECTS


def test_words_of_a_pause_are_the_same_everywhere() -> None:
    """What is paused, by whom and why."""
    assert EFFECTS.words == "enrolls and rejects, by ann: a drill"
    assert ALL.words == "everything automatic, by bob: a drill"

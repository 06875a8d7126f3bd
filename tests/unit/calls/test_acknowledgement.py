"""Acknowledgements: what they cover, and until when."""

from datetime import timedelta

import msgspec

from callkeeper.calls.acknowledgement import Acknowledgement, acknowledgement_of, parse_acknowledgements
from tests.unit.calls.specimens import NOW


def known(kind: str = "late", institution_key: str = "", hours: float = 1) -> Acknowledgement:
    """Return an acknowledgement that lasts so long."""
    until = NOW + timedelta(hours=hours)
    return Acknowledgement(kind=kind, operator="ann", at=NOW, until=until, institution_key=institution_key)


def test_acknowledgement_of_all_covers_each_institution() -> None:
    """One of an institution covers that one only, and each covers one kind."""
    assert known().covers("late", "cu-1")
    assert known(institution_key="cu-1").covers("late", "cu-1")
    assert not known(institution_key="cu-1").covers("late", "cu-2")
    assert not known().covers("no_worker", "cu-1")


def test_whoever_knows_of_a_fault_does_not_know_of_the_next() -> None:
    """A fault that joins the incident is told; the acknowledgement stays for those that it names, until all are over."""
    one = msgspec.structs.replace(known(), parts=("refused", "unlisted"))
    assert one.covers("late", "cu-1", ["refused"])
    assert not one.covers("late", "cu-1", ["refused", "away"])
    assert one.is_about("late", "cu-1")


def test_of_several_the_longest_counts() -> None:
    """Nobody is told while any of them lasts."""
    short, long = known(hours=1), known(institution_key="cu-1", hours=2)
    assert acknowledgement_of("late", "cu-1", [short, long]) == long
    assert acknowledgement_of("late", "cu-2", [short, long]) == short
    assert acknowledgement_of("no_worker", "cu-1", [short, long]) is None


def test_ended_and_unreadable_ones_are_left_out() -> None:
    """One ends at its time, not after it; another version's format is not an error."""
    lasting, ended = known("a"), known("b", hours=0)
    stored = {one.field.encode(): msgspec.json.encode(one) for one in (lasting, ended)} | {b"c": b"\xff{"}
    assert parse_acknowledgements(stored, NOW) == [lasting]


def test_words_name_the_day_and_its_year() -> None:
    """It may end tomorrow, and is shown as other times are."""
    assert known().words == "acknowledged by ann until 2026-11-21 13:00 UTC"

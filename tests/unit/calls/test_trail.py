"""Trails: stored entries, and recorded calls line by line."""

import pytest

from callkeeper.calls.trail import (
    Entry,
    RecordingWrong,
    encode_entry,
    encode_recorded,
    parse_recordings,
    parse_trail,
    recorded,
    without_typed_words,
)
from tests.unit.calls.specimens import NOW, call, seconds

LINES = (
    Entry(at=NOW, what="said", because="Ada Example is my aunt", operator="ann"),
    Entry(at=NOW + seconds(1), what="settled", because="ended", pause="enrolls and rejects, by ann: Ada called"),
)


def test_unreadable_entry_keeps_its_place() -> None:
    """Outcomes are numbered by their entries; it has the time of the one before."""
    first, second, third = parse_trail([encode_entry(LINES[0]), b"{", encode_entry(LINES[1])])
    assert (first, third) == LINES
    assert second == Entry(at=NOW, what="unreadable")
    assert parse_trail([b"{"])[0].what == "unreadable"


def test_recorded_call_is_read_back_as_written() -> None:
    """One line each; empty lines are skipped."""
    one = recorded(call(), LINES)
    assert list(parse_recordings([encode_recorded(one), b"  \n"])) == [one]
    assert one.begins_at == call().life.started_at
    assert recorded(call(started_at=None), LINES).begins_at == NOW
    assert recorded(call(started_at=None), ()).begins_at is None


@pytest.mark.parametrize("line", [b"{}", b"no", b'{"format":"callkeeper.trail/2"}'])
def test_line_of_another_format_is_refused_with_its_number(line: bytes) -> None:
    """The message names the line."""
    with pytest.raises(RecordingWrong, match="line 2 is not a call"):
        list(parse_recordings([encode_recorded(recorded(call(), ())), line]))


def test_typed_words_are_left_out_and_reasons_of_rules_stay() -> None:
    """What people typed may name anybody, and decides nothing."""
    said, settled = without_typed_words(recorded(call(), LINES)).trail
    assert said.because is None
    assert settled.because == "ended"
    assert settled.pause == "enrolls and rejects, by ann"

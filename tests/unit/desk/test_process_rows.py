"""The table of processes: what each does, and what is odd about it."""

from datetime import UTC, datetime, timedelta

import pytest

from callkeeper.calls.metrics.process_activity import MOST_WORDS, Doing, encode_doing
from callkeeper.calls.metrics.snapshot import Process
from callkeeper.calls.stored_value import readable
from callkeeper.desk.board.process_rows import doing_words, rows_of

NOW = datetime(2027, 3, 1, 12, tzinfo=UTC)


def process(name: str, kind: str = "worker", silent_s: float = 0.4, **more: object) -> Process:
    """Return a process that reported lately."""
    known = {"version": "0.4.0", "rules": "aaa", "cpu": 0.2, **more}
    return Process(name, kind, 1 << 20, NOW, reported_at=NOW - timedelta(seconds=silent_s), **known)  # type: ignore[arg-type]  # as given


@pytest.mark.parametrize(
    ("doing", "kind", "words"),
    [
        (None, "worker", "not reported by this release"),
        (Doing(), "worker", "waits for a job"),
        (Doing(shift_s=2.6), "worker", "shift of 3 s, nothing in flight"),
        (Doing(shift_s=9, calls=1, listings=2), "worker", "shift of 9 s, 1 call, 2 listings in flight"),
        (Doing(shift_s=9, outcomes=3, archived=2), "worker", "shift of 9 s, 3 outcomes, 2 archived batches in flight"),
        (Doing(shift_s=9, cut_off_s=4.6), "worker", "cannot reach the service for 5 s; others can"),
        (Doing(streams=1), "web", "1 open stream"),
        (Doing(), "web", "0 open streams"),
    ],
    ids=lambda value: str(value) if isinstance(value, str) else "",
)
def test_what_a_process_does_is_told_in_words(doing: Doing | None, kind: str, words: str) -> None:
    """A worker tells its shift and what is in flight, a web process its streams, an older release nothing."""
    assert doing_words(doing, kind) == words


def test_what_a_process_does_survives_storage_and_other_releases() -> None:
    """It is read as it was written, with bounded words; what another release wrote is left out."""
    doing = Doing(shift_s=1.5, calls=3, did="x" * 1000)
    stored = encode_doing(doing)
    read = readable(stored, Doing)
    assert read is not None
    assert (read.calls, len(read.did), len(stored) < MOST_WORDS + 100) == (3, MOST_WORDS, True)
    assert [readable(each, Doing) for each in (None, b"", b"[", b'{"calls":"many"}')] == [None] * 4


def test_odd_processes_are_marked() -> None:
    """Silent for three seconds, at 80 % of a core, with other rules or another release than most."""
    rows = rows_of(
        [
            process("web-1-5-aa", "web"),
            process("b-1-7-aa", silent_s=4),
            process("a-1-7-aa", cpu=0.8),
            process("c-1-7-aa", rules="bbb"),
            process("d-1-7-aa", version="0.3.0", rules="", cpu=None),
        ],
        NOW,
        "aaa",
    )
    marks = {row.process.host: (row.is_late, row.is_busy, row.has_other_rules, row.has_other_release) for row in rows}
    assert list(marks) == ["a-1", "b-1", "c-1", "d-1", "web-1"]
    assert marks == {
        "a-1": (False, True, False, False),
        "b-1": (True, False, False, False),
        "c-1": (False, False, True, False),
        "d-1": (False, False, False, True),
        "web-1": (False, False, False, False),
    }

"""Log lines whose reader is slow, stops reading, or is gone."""

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO, FileIO

import pytest

from callkeeper.app.logs import LogWriter, Sink
from tests.waiting import until

LONG_S = 10.0


class Gate(BytesIO):
    """A file whose reader takes nothing until the gate is open. It takes at most ``most`` bytes at once, like a pipe."""

    def __init__(self, *, is_open: bool = False, most: int | None = None) -> None:
        super().__init__()
        self.opened = threading.Event()
        self.entered = threading.Event()
        self._most = most
        if is_open:
            self.opened.set()

    def write(self, data: memoryview, /) -> int:  # type: ignore[override]  # no other type is written
        """Wait for the reader, and write."""
        self.entered.set()
        self.opened.wait()
        return super().write(data[: self._most])

    def lines(self) -> list[str]:
        """Return the lines that have reached the reader."""
        return self.getvalue().decode().splitlines()


class Torn(BytesIO):
    """A file whose disk is full after some bytes, for one write."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self._room: int | None = room

    def write(self, data: memoryview, /) -> int:  # type: ignore[override]  # no other type is written
        """Write what there is room for, then fail once, then write again."""
        if self._room == 0:
            self._room = None
            raise OSError
        written = super().write(data[: self._room])
        self._room = None if self._room is None else self._room - written
        return written


def writer_to(sink: Sink, *, most_lines: int = 100) -> LogWriter:
    """Return a writer that says ``N lost``."""
    return LogWriter(sink, lambda lines: f"{lines} lost", most_lines=most_lines)


@pytest.fixture
def gate() -> Iterator[Gate]:
    """Return a file whose reader does not read yet."""
    gate = Gate()
    yield gate
    gate.opened.set()


def held_up(gate: Gate, *, most_lines: int) -> LogWriter:
    """Return a writer whose thread waits in a write of the line ``first``."""
    writer = writer_to(gate, most_lines=most_lines)
    writer.msg("first")
    assert gate.entered.wait(LONG_S)
    return writer


def test_lines_are_written_in_their_order() -> None:
    """Every line arrives once, in the order in which it was logged, also if the file takes a few bytes at a time."""
    gate = Gate(is_open=True, most=7)
    writer = writer_to(gate, most_lines=10_000)
    for n in range(2000):
        writer.msg(f"line {n}")
    writer.flush(LONG_S)
    assert gate.lines() == [f"line {n}" for n in range(2000)]


def test_logging_does_not_wait_for_a_reader(gate: Gate) -> None:
    """With nobody reading, a line is taken at once: whoever logs goes on."""
    writer = held_up(gate, most_lines=3)

    def log() -> None:
        for n in range(10):
            writer.msg(f"line {n}")

    logging = threading.Thread(target=log, daemon=True)
    logging.start()
    logging.join(LONG_S)
    assert not logging.is_alive()


def test_lines_that_find_no_room_are_counted_and_said(gate: Gate) -> None:
    """The reader gets the lines that waited, and after them how many are missing, once."""
    writer = held_up(gate, most_lines=3)
    for n in range(10):
        writer.msg(f"line {n}")
    assert writer.lost == 7
    gate.opened.set()
    until(lambda: "7 lost" in gate.lines(), LONG_S, "the line that says it")
    writer.msg("last")
    writer.flush(LONG_S)
    assert gate.lines() == ["first", "line 0", "line 1", "line 2", "7 lost", "last"]


def test_flush_waits_for_a_reader_only_as_long_as_it_is_told(gate: Gate) -> None:
    """A process ends although nobody reads its log."""
    writer = held_up(gate, most_lines=3)
    flushing = threading.Thread(target=writer.flush, args=(0.05,), daemon=True)
    flushing.start()
    flushing.join(LONG_S)
    assert not flushing.is_alive()


def test_line_after_a_torn_one_begins_anew() -> None:
    """If the disk is full in the middle of a line, that line counts as lost, and the next one stands alone."""
    torn = Torn(room=9)
    writer = writer_to(torn)
    for line in ("line 0", "line 1", "line 2"):
        writer.msg(line)
        writer.flush(LONG_S)
    assert torn.getvalue().decode().splitlines() == ["line 0", "li", "line 2", "1 lost"]
    assert writer.lost == 1


def test_reader_that_is_gone_ends_no_thread() -> None:
    """Lines to a closed pipe are lost; a line after it is tried again."""
    reader, end = os.pipe()
    with FileIO(end, "wb") as pipe:
        os.close(reader)
        writer = writer_to(pipe)
        for n in (1, 2):
            writer.msg("a line")
            writer.flush(LONG_S)
            assert writer.lost == n


def test_full_pipe_that_must_not_wait_loses_lines() -> None:
    """Another process may have told the pipe not to wait: what finds no room is lost, and said later."""
    reader, end = os.pipe()
    os.set_blocking(end, False)
    with FileIO(end, "wb") as pipe, FileIO(reader, "rb") as at_reader:
        with suppress(BlockingIOError):
            while pipe.write(b"." * 1024):
                pass
        writer = writer_to(pipe)
        writer.msg("lost")
        writer.flush(LONG_S)
        assert writer.lost == 1
        at_reader.read(1 << 20)
        writer.msg("found")
        writer.flush(LONG_S)
        assert at_reader.read(1 << 20) == b"found\n1 lost\n"


def test_closed_writer_writes_what_it_has(gate: Gate) -> None:
    """Its thread ends after the last line."""
    writer = held_up(gate, most_lines=3)
    writer.msg("last")
    writer.enqueue_sentinel()
    gate.opened.set()
    until(lambda: gate.lines() == ["first", "last"], LONG_S, "the last line")

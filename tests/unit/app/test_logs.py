"""Log lines: their form, and what they must not contain."""

import contextvars
import errno
import io
import json
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from structlog.contextvars import bind_contextvars

from callkeeper.app.logs import _REPORTERS, flush_log, lines_lost, report_lines_to, set_up_logging
from callkeeper.service.secret import Secret

CANARY = "canary-7f3a"


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    """Put Python's own logging back as it was."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers, root.level = handlers, level
    logging.captureWarnings(False)
    structlog.reset_defaults()


class Stream(io.BytesIO):
    """A file in memory."""

    def text(self) -> str:
        """Return everything that was logged until now."""
        flush_log()
        return self.getvalue().decode()


@pytest.fixture
def stream() -> Stream:
    """Return where the lines go."""
    return Stream()


def lines(stream: Stream) -> list[dict[str, Any]]:
    """Return all JSON lines that were written."""
    return [json.loads(line) for line in stream.text().splitlines()]


def test_log_line_is_json_with_a_utc_time(stream: Stream) -> None:
    """One event is one line of JSON with UTC time, level and name, in this order, and then keys and process."""
    set_up_logging(sink=stream).info("push_accepted", voice_id="voice-1", is_test=False)
    [line] = lines(stream)
    assert list(line)[:3] == ["timestamp", "level", "event"]
    assert line.pop("timestamp").endswith("Z")
    assert isinstance(line.pop("process"), int)
    assert line == {"event": "push_accepted", "level": "info", "voice_id": "voice-1", "is_test": False}


def test_log_drops_keys_that_are_not_allowed(stream: Stream) -> None:
    """A key that is not in the list is dropped, and the line names it."""
    set_up_logging(sink=stream).info("push_accepted", voice_id="voice-1", phone_number=CANARY)
    [line] = lines(stream)
    assert line["dropped"] == ["phone_number"]
    assert CANARY not in stream.text()


class Full(Stream):
    """A file on a disk that is full for a while."""

    is_full = True

    def write(self, data: Any, /) -> int:
        """Write, or fail like a full disk."""
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(data)


def test_line_that_cannot_be_written_stops_no_work() -> None:
    """The disk of the log is full, or its reader is gone: lines are lost and counted, calls are handled."""
    stream = Full()
    log = set_up_logging(sink=stream)
    log.info("worker_started", worker="w-1")
    flush_log()
    stream.is_full = False
    log.info("worker_stopped", worker="w-1")
    stopped, lost = lines(stream)
    assert (stopped["event"], lost["event"], lost["level"], lost["lines"]) == (
        "worker_stopped",
        "log_lines_lost",
        "warning",
        1,
    )
    assert lines_lost() == 1


def test_log_says_which_call_and_event_a_line_is_about(stream: Stream) -> None:
    """After a task has bound its call and event, all its lines have them, also those of libraries."""
    log = set_up_logging(sink=stream)

    def work() -> None:
        bind_contextvars(institution="cu-1", voice_id="voice-1", trace_id="0af7")
        log.info("token_fault")
        logging.getLogger("aiohttp").warning("not well")

    contextvars.copy_context().run(work)
    log.info("token_fault")
    about = [{key: line.get(key) for key in ("institution", "voice_id", "trace_id")} for line in lines(stream)]
    known = {"institution": "cu-1", "voice_id": "voice-1", "trace_id": "0af7"}
    assert about == [known, known, dict.fromkeys(known)]


@pytest.mark.parametrize("for_people", [False, True])
def test_log_never_shows_a_secret(for_people: bool, stream: Stream) -> None:
    """A secret under an allowed key is masked by its type."""
    set_up_logging(sink=stream, for_people=for_people).info("push_accepted", voice_id=Secret(CANARY))
    assert CANARY not in stream.text()


def fail_with_locals(told: str) -> None:
    """Raise a chain of exceptions that hold what they were told in messages and in variables."""
    try:
        int(told)
    except ValueError as error:
        raise ExceptionGroup(told, [RuntimeError(told)]) from error


@pytest.mark.parametrize("for_people", [False, True])
def test_log_shows_where_an_exception_came_from_and_not_what_it_says(for_people: bool, stream: Stream) -> None:
    """A traceback contains types and places of the whole chain, but no message, source line or variable."""
    log = set_up_logging(sink=stream, for_people=for_people)
    try:
        fail_with_locals(CANARY)
    except ExceptionGroup:
        log.exception("step_failed")
    text = stream.text()
    assert CANARY not in text
    for expected in ("ExceptionGroup", "RuntimeError", "ValueError", "app/test_logs.py", "fail_with_locals"):
        assert expected in text


def test_log_takes_the_libraries_messages(stream: Stream) -> None:
    """A library's message becomes an event with its name, the first line of the message, and the places."""
    set_up_logging(sink=stream)
    try:
        fail_with_locals(CANARY)
    except ExceptionGroup:
        logging.getLogger("uvicorn.asgi").exception("Exception in ASGI application\nfuture: %s", CANARY)
    [line] = lines(stream)
    assert (line["event"], line["level"], line["library"]) == ("library_message", "error", "uvicorn.asgi")
    assert line["message"] == "Exception in ASGI application"
    assert line["error"] == "ExceptionGroup"
    assert CANARY not in stream.text()


@pytest.mark.parametrize(
    "settings",
    [{"level": logging.CRITICAL}, {"propagate": False}, {"disabled": True}],
    ids=["a level", "no propagation", "switched off"],
)
def test_log_takes_over_what_was_set_up_before(settings: dict[str, Any], stream: Stream) -> None:
    """A logger that a library disabled or redirected earlier still logs."""
    library = logging.getLogger("a.library")
    for name, value in settings.items():
        setattr(library, name, value)
    set_up_logging(sink=stream)
    library.warning("not well")
    assert [line["message"] for line in lines(stream)] == ["not well"]


@pytest.mark.parametrize("library", ["uvicorn.error", "rq.worker", "httpx", "asyncio"])
def test_log_leaves_out_the_libraries_chatter(library: str, stream: Stream, caplog: pytest.LogCaptureFixture) -> None:
    """Of libraries' messages only warnings and errors are logged."""
    set_up_logging(sink=stream)
    caplog.set_level(logging.INFO, logger=library)
    logging.getLogger(library).info("HTTP Request: GET https://service.example/external/calls/%s", CANARY)
    assert stream.text() == ""


@pytest.mark.parametrize("number", ["5550100001", "+1 (555) 010-0001", "555.010.0001", "0015550100001"])
def test_log_shows_four_digits_of_a_number(number: str, stream: Stream) -> None:
    """In a library's message, a text that could be a phone number is cut to four digits."""
    set_up_logging(sink=stream)
    logging.getLogger("httpx").warning("no answer about %s from port 5432 after 30 s", number)
    [line] = lines(stream)
    assert line["message"] == "no answer about …0001 from port 5432 after 30 s"


def test_log_takes_warnings(stream: Stream) -> None:
    """A Python warning becomes a log line."""
    set_up_logging(sink=stream)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.getLogger("py.warnings").warning("DeprecationWarning: old")
    assert lines(stream)[0]["library"] == "py.warnings"


def test_log_for_the_eye_is_one_line(stream: Stream) -> None:
    """The console format shows time, level, name and keys on one line, whatever a value contains."""
    set_up_logging(sink=stream, for_people=True).info("push_refused", reason="two words\nand a line")
    [line] = stream.text().splitlines()
    assert line.endswith(r"push_refused                reason='two words\nand a line'")


def test_structlog_itself_writes_the_same_lines(stream: Stream) -> None:
    """A package that calls structlog.get_logger gets our logger."""
    set_up_logging(sink=stream)
    structlog.get_logger("anything").warning("token_fault")
    assert lines(stream)[0]["event"] == "token_fault"


@pytest.mark.parametrize("error", [RuntimeError, structlog.DropEvent])
def test_log_can_be_reported_to_a_processor(stream: Stream, error: type[BaseException]) -> None:
    """It sees every line as it is written, cannot change it, and its errors stop nothing."""
    seen: list[dict[str, Any]] = []

    def report(_logger: Any, _method: str, event: Any) -> Any:
        seen.append({**event})
        event["event"] = "changed"
        raise error

    report_lines_to(report)
    try:
        log = set_up_logging(sink=stream)
        log.info("push_accepted", voice_id="voice-1", phone_number=CANARY)
        log.error("crashed", exc_info=ValueError(CANARY))
    finally:
        _REPORTERS.remove(report)
    assert [(line["event"], line["level"]) for line in seen] == [("push_accepted", "info"), ("crashed", "error")]
    assert seen[1]["error"] == "ValueError"
    assert CANARY not in repr(seen)
    assert [line["event"] for line in lines(stream)] == ["push_accepted", "crashed"]

"""Formats an exception as the types and code places of its chain: no messages, no source lines, no variables.

A message may hold what a caller said, or an answer that could not be read. It must not get into a log, or into a job's
record, where it would stay for days.
"""

import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_MAX_FRAMES: Final = 20


def filtered_traceback(error: BaseException, *, depth: int = 0) -> Iterator[str]:
    """Yield a line for an exception and each of its causes: its type, then its code places, innermost first."""
    frames = list(traceback.walk_tb(error.__traceback__))[-_MAX_FRAMES:]
    steps = (f"{_short(frame.f_code.co_filename)}:{line} {frame.f_code.co_name}" for frame, line in frames)
    yield " < ".join([type(error).__name__, *reversed(list(steps))])
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    inner = [*error.exceptions] if isinstance(error, BaseExceptionGroup) else []
    for other in [*inner, *([cause] if cause else [])]:
        if depth < _MAX_FRAMES:
            yield from filtered_traceback(other, depth=depth + 1)


def _short(filename: str) -> str:
    return "/".join(Path(filename).parts[-2:])


def innermost_place(error: BaseException) -> str:
    """Return the innermost code place of an error, without any values."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "?"
    code = trace.tb_frame.f_code
    return f"{code.co_qualname}:{trace.tb_lineno}"

"""Waiting for a condition instead of for a guessed time: `until` for processes, `until_async` in an event loop."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import TypeVar

T = TypeVar("T")


def until(
    look: Callable[[], T | None],
    within_s: float,
    what: str,
    *,
    every_s: float = 0.05,
    excused: tuple[type[Exception], ...] = (),
) -> T:
    """Call ``look`` repeatedly until it returns a true value, and return that. ``excused`` errors mean: not yet.

    Raises:
        AssertionError: ``look`` returned no true value in time.
    """
    end_s = time.monotonic() + within_s
    while time.monotonic() < end_s:
        try:
            seen = look()
        except excused:
            seen = None
        if seen:
            return seen
        time.sleep(every_s)
    raise AssertionError(f"waited {within_s:.0f} s in vain for {what}")


async def until_async(look: Callable[[], object | Awaitable[object]]) -> None:
    """Let the loop run until a condition holds; the test's own time limit ends it otherwise."""
    while True:
        seen = look()
        if await seen if isawaitable(seen) else seen:
            return
        await asyncio.sleep(0.002)

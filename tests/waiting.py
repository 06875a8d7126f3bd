"""Waiting for a condition instead of for a guessed time."""

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object]) -> None:
    """Let the loop run until a condition holds; the test's own time limit ends it otherwise."""
    while not condition():  # noqa: ASYNC110  (the condition belongs to code that offers no event)
        await asyncio.sleep(0.002)

"""Does in one go what many coroutines ask for in the same moment: a group commit.

While as many batches are on their way as may be, the next gathers. Each caller gets its own answer, or the error of its
batch.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from redis.exceptions import RedisError

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


class Gathering(Generic[Asked, Answer]):
    """Hands on what was asked for, in batches."""

    def __init__(
        self,
        together: Callable[[Sequence[Asked]], Awaitable[Sequence[Answer | Exception]]],
        *,
        most: int,
        abreast: int = 1,
    ) -> None:
        """Have nothing to do.

        Args:
            together: Does a batch, and answers each in its place; what it raises is the answer to all of them.
            most: How many a batch may be.
            abreast: How many batches may be on their way at once.
        """
        self._together = together
        self._most = most
        self._waiting: list[tuple[Asked, asyncio.Future[Answer]]] = []
        self._abreast = abreast
        self._senders: set[asyncio.Task[None]] = set()

    async def ask(self, asked: Asked, *, within_s: float | None = None) -> Answer:
        """Have something done, and return the answer.

        Args:
            asked: What.
            within_s: How long to wait. A timer and no ``asyncio.timeout``: that costs ten times as much.

        Raises:
            Exception: Whatever the batch raised, or answered in this place.
            TimeoutError: There is no answer in time; it may still be done.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        self._waiting.append((asked, future))
        if len(self._senders) < self._abreast:
            self._senders.add(asyncio.ensure_future(self._send()))
        if within_s is None:
            return await future
        timer = loop.call_later(within_s, _give_up, future)
        try:
            return await future
        finally:
            timer.cancel()

    async def _send(self) -> None:
        try:
            while self._waiting:
                await asyncio.sleep(0)  # whoever asks in this turn of the loop comes along
                batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
                if batch:
                    await self._do(batch)
        finally:
            self._senders.discard(asyncio.current_task())

    async def _do(self, batch: Sequence[tuple[Asked, asyncio.Future[Answer]]]) -> None:
        try:
            answers = await self._together([asked for asked, _ in batch])
        except BaseException as error:
            for _, future in batch:
                if not future.done():
                    future.set_exception(_copy(error))
            if not isinstance(error, RedisError | OSError):
                raise
            return
        for (_, future), answer in zip(batch, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)


def _give_up(future: asyncio.Future[Answer]) -> None:
    if not future.done():
        future.set_exception(TimeoutError())


def _copy(error: BaseException) -> BaseException:
    """Return an exception of the same kind for one more waiter: a shared one would collect all their tracebacks."""
    if isinstance(error, asyncio.CancelledError):
        return asyncio.CancelledError()
    try:
        return type(error)(*error.args)
    except TypeError:
        return RedisError(str(error))

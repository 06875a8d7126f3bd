"""Runs our Lua scripts, many in one round trip.

Coroutines that call a script in the same moment share one pipeline: while one is on its way, the next gathers. Each
caller gets its own answer; a lost connection fails all of them. Scripts may be repeated by the Redis client when an
answer was lost, so every one of them is idempotent (see the files in ``calls/lua``).
"""

import asyncio
from collections.abc import Sequence
from importlib.resources import files
from typing import Any, Literal, get_args

from redis.asyncio import Redis
from redis.commands.core import AsyncScript
from redis.exceptions import NoScriptError, RedisError

ScriptName = Literal["push", "note", "claim", "keep", "save", "merge", "pulse", "service", "count", "tidy"]
"""The scripts there are, one file each."""

Arg = str | bytes | int | float

_PIPELINE_LIMIT = 256


def source(name: ScriptName) -> str:
    """Return a script's text: what all share, then its own file."""
    folder = files("calls") / "lua"
    return f"{(folder / 'prelude.lua').read_text()}\n{(folder / f'{name}.lua').read_text()}"


class Scripts:
    """Calls scripts on one Redis connection pool, gathering concurrent calls into pipelines."""

    def __init__(self, redis: "Redis") -> None:
        self._redis = redis
        self._scripts = {name: AsyncScript(redis, source(name)) for name in get_args(ScriptName)}
        self._waiting: list[tuple[AsyncScript, Sequence[str], Sequence[Arg], asyncio.Future[Any]]] = []
        self._sender: asyncio.Task[None] | None = None
        self._loaded = False

    async def call(
        self, name: ScriptName, keys: Sequence[str], args: Sequence[Arg], *, within_s: float | None = None
    ) -> Any:
        """Run a script and return its answer.

        Args:
            name: Which.
            keys: Its keys.
            args: Its arguments.
            within_s: How long to wait for the answer. A timer and no ``asyncio.timeout``: that costs ten times as much.

        Raises:
            redis.exceptions.RedisError: Redis is away, refuses to write, or the script failed.
            TimeoutError: There is no answer in time; the script may still be run.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._waiting.append((self._scripts[name], keys, args, future))
        if self._sender is None or self._sender.done():
            self._sender = asyncio.ensure_future(self._send())
        if within_s is None:
            return await future
        timer = loop.call_later(within_s, _give_up, future)
        try:
            return await future
        finally:
            timer.cancel()

    async def _send(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:_PIPELINE_LIMIT], self._waiting[_PIPELINE_LIMIT:]
            try:
                answers = await self._run([(script, keys, args) for script, keys, args, _ in batch])
            except BaseException as error:
                for *_, future in batch:
                    if not future.done():
                        future.set_exception(_copy(error))
                if not isinstance(error, RedisError | OSError):
                    raise
                continue
            for (*_, future), answer in zip(batch, answers, strict=True):
                if future.done():
                    continue
                if isinstance(answer, Exception):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)

    async def _run(self, calls: list[tuple[AsyncScript, Sequence[str], Sequence[Arg]]]) -> list[Any]:
        if not self._loaded:
            await self._load()
        answers = await self._evaluate(calls)
        lost = [n for n, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
        if lost:
            await self._load()
            for n, answer in zip(lost, await self._evaluate([calls[n] for n in lost]), strict=True):
                answers[n] = answer
        return answers

    async def _evaluate(self, calls: list[tuple[AsyncScript, Sequence[str], Sequence[Arg]]]) -> list[Any]:
        async with self._redis.pipeline(transaction=False) as pipe:
            for script, keys, args in calls:
                pipe.evalsha(script.sha, len(keys), *keys, *args)
            return await pipe.execute(raise_on_error=False)

    async def _load(self) -> None:
        for script in self._scripts.values():
            await self._redis.script_load(script.script)
        self._loaded = True


def _give_up(future: asyncio.Future[Any]) -> None:
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

"""Runs our Lua scripts, many in one round trip: a group commit.

Coroutines that call a script in the same moment share one pipeline. Each caller gets its own answer; a lost connection
fails all of them. The Redis client repeats a script whose answer was lost, so each may be repeated, at any later time
(see the files in ``calls/lua``).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from importlib.resources import files
from typing import Any, Generic, Literal, TypeVar, get_args

from redis.asyncio import Redis
from redis.commands.core import AsyncScript
from redis.exceptions import NoScriptError, RedisError

from calls.metrics.counting import Figures
from calls.store.replication import Replication

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


ScriptName = Literal[
    "push",
    "note",
    "claim",
    "keep",
    "save",
    "merge",
    "pulse",
    "report",
    "probe",
    "retry",
    "count",
    "tidy",
    "limit",
    "pause",
]
"""The scripts there are, one file each."""

Arg = str | bytes | int | float
ScriptCall = tuple[AsyncScript, Sequence[str], Sequence[Arg]]

_PIPELINE_LIMIT = 256
_REPLICATED_AT_ONCE = 3
"""Pipelines that wait for a replica at the same time; the others do not queue behind them."""


def source(name: ScriptName) -> str:
    """Return a script's text: what all share, then its own file."""
    return joined("prelude", name)


def joined(*names: str) -> str:
    """Return the text of files of ``calls/lua``, one after the other."""
    folder = files("calls") / "lua"
    return "\n".join((folder / f"{name}.lua").read_text() for name in names)


class Scripts:
    """Calls scripts on one Redis connection pool, gathering concurrent calls into pipelines."""

    def __init__(self, redis: "Redis", figures: Figures | None = None) -> None:
        self._redis = redis
        self._replication = Replication(Figures() if figures is None else figures)
        self._scripts = {name: AsyncScript(redis, source(name)) for name in get_args(ScriptName)}
        self._calls = Gathering(self._run, most=_PIPELINE_LIMIT)
        self._replicated = Gathering(self._run_replicated, most=_PIPELINE_LIMIT, abreast=_REPLICATED_AT_ONCE)
        self._loaded = False

    async def call(
        self,
        name: ScriptName,
        keys: Sequence[str],
        args: Sequence[Arg],
        *,
        replicated: bool = False,
        within_s: float | None = None,
    ) -> Any:
        """Run a script and return its answer.

        Args:
            name: Which.
            keys: Its keys.
            args: Its arguments.
            replicated: Wait until the replicas have what it wrote, where Redis has some.
            within_s: How long to wait for the answer.

        Raises:
            redis.exceptions.RedisError: Redis is away, refuses to write, or the script failed.
            TimeoutError: There is no answer in time; the script may still be run.
        """
        calls = self._replicated if replicated else self._calls
        return await calls.ask((self._scripts[name], keys, args), within_s=within_s)

    async def _run(self, calls: Sequence[ScriptCall]) -> list[Any]:
        return await self._run_loaded(calls, replicas=0)

    async def _run_replicated(self, calls: Sequence[ScriptCall]) -> list[Any]:
        return await self._run_loaded(calls, replicas=await self._replication.replicas(self._redis))

    async def _run_loaded(self, calls: Sequence[ScriptCall], *, replicas: int) -> list[Any]:
        if not self._loaded:
            await self._load()
        answers = await self._evaluate(calls, replicas)
        lost = [n for n, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
        if lost:
            await self._load()
            again = await self._evaluate([calls[n] for n in lost], replicas)
            for n, answer in zip(lost, again, strict=True):
                answers[n] = answer
        return answers

    async def _evaluate(self, calls: Sequence[ScriptCall], replicas: int) -> list[Any]:
        async with self._redis.pipeline(transaction=False) as pipe:
            for script, keys, args in calls:
                pipe.evalsha(script.sha, len(keys), *keys, *args)
            added = self._replication.wait(pipe, replicas) if replicas else 0
            answers = await pipe.execute(raise_on_error=False)
        if added:
            await self._replication.judge(self._redis, answers[-added:])
        return answers[: len(calls)]

    async def _load(self) -> None:
        async with self._redis.pipeline(transaction=False) as pipe:
            for script in self._scripts.values():
                pipe.script_load(script.script)
            await pipe.execute()
        self._loaded = True

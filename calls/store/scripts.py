"""Runs our Lua scripts, many in one round trip, and waits for the replicas of Redis where a write must not be lost.

Coroutines that call a script in the same moment share one pipeline: a group commit. Each caller gets its own answer; a
lost connection fails all of them. The Redis client repeats a script whose answer was lost, so each may be repeated, at
any later time (see the files in ``calls/lua``).

Redis answers a write before its replicas have it. What must not be lost (a push or a statement before its 202, an
effect's ``sent`` before its first byte) is therefore followed by ``WAIT``, in the same pipeline: ``WAIT`` knows only
the writes of its own connection. A server without replicas is not asked to wait.

``WAIT 1`` is enough where the master dies: the sentinels promote the replica that has most. It is not enough where a
living master is replaced: one replica is promoted, and for a second the others go on confirming what the old master
writes (*measured*). So all are waited for, and the server says in the same pipeline which it has. If one is missing,
the sentinels say whether the master is being replaced; then nothing was confirmed.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any, Final, Generic, Literal, NamedTuple, Protocol, TypeVar, get_args, runtime_checkable

from redis.asyncio import Redis
from redis.commands.core import AsyncScript
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError, ResponseError

from calls.metrics import catalogue as figure
from calls.metrics.counting import Figures

WITHIN_MS: Final = 100
"""How long a write waits for replicas. If none confirms it in time, the write stands, and that is counted."""

LOOK_EVERY_S: Final = 1.0
"""How long it is believed which replicas the server has, if nothing is written meanwhile."""

_LAG_S: Final = 2
"""A replica that has said nothing for longer than this is not waited for; one that is well reports every second."""


class SentinelView(NamedTuple):
    """What one sentinel says of the master: its run id (empty while it does not know), and whether it is being replaced."""

    run_id: str
    is_failing_over: bool


class _Server(NamedTuple):
    """Which server it is, and the addresses of its replicas that keep up, or of all if none does."""

    run_id: str = ""
    replicas: frozenset[str] = frozenset()


@runtime_checkable
class Watched(Protocol):
    """A client of a server that sentinels watch."""

    async def standings(self) -> list[SentinelView]:
        """Ask all sentinels; those that do not answer are left out."""


class Replication:
    """Asks the replicas of one server for confirmation, and counts how often none gave it."""

    def __init__(self, figures: Figures, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._figures = figures
        self._monotonic = monotonic
        self._server = _Server()
        self._looked_at_s = -LOOK_EVERY_S

    async def replicas(self, redis: Any) -> int:
        """Return how many replicas have to confirm a write.

        Raises:
            redis.exceptions.RedisError: Redis is away, or the server is being replaced.
        """
        if self._monotonic() - self._looked_at_s >= LOOK_EVERY_S:
            async with redis.pipeline(transaction=False) as pipe:
                _ask_who(pipe)
                try:
                    told = await pipe.execute()
                except ResponseError:  # a server that does not tell
                    told = [{}, {}]
            await self._see(redis, _server(*told), is_whole=False)
        return len(self._server.replicas)

    def wait(self, pipe: Any, replicas: int) -> int:
        """Let a pipeline wait for replicas; return how many answers that adds, for ``judge``."""
        pipe.execute_command("WAIT", replicas, WITHIN_MS)
        _ask_who(pipe)
        return 3

    async def judge(self, redis: Any, answers: Sequence[Any]) -> None:
        """Look into a wait that not all replicas confirmed, and count one that none did: 0, or an error in its place.

        Raises:
            redis.exceptions.ConnectionError: The server is being replaced: what was written may be lost with it.
        """
        confirmed, *told = answers
        confirmed = confirmed if isinstance(confirmed, int) else 0
        server = _server(*told) if all(isinstance(one, dict) for one in told) else _Server()
        is_whole = confirmed >= len(server.replicas) and self._server.replicas <= server.replicas
        await self._see(redis, server, is_whole=is_whole and server.run_id == self._server.run_id)
        if not confirmed:
            self._figures.count(figure.WRITES_UNREPLICATED)

    async def _see(self, redis: Any, server: _Server, *, is_whole: bool) -> None:
        """Remember a server; not whole is one of which a replica may be about to take over.

        A server that was restarted has a run id that the sentinels learn later: against one that is new to us speaks only a
        failover under way.
        """
        if not is_whole and isinstance(redis, Watched):
            may_have_lost_one = server.run_id == self._server.run_id and not self._server.replicas <= server.replicas
            for told in await redis.standings():
                is_leaving = told.is_failing_over and told.run_id == server.run_id
                if is_leaving or (may_have_lost_one and told.run_id != server.run_id and not told.is_failing_over):
                    await redis.connection_pool.disconnect(inuse_connections=False)  # type: ignore[attr-defined]
                    raise RedisConnectionError("the master is being replaced")
        self._server, self._looked_at_s = server, self._monotonic()


def _ask_who(pipe: Any) -> None:
    pipe.info("server")
    pipe.info("replication")


def _server(about: Mapping[str, Any], replication: Mapping[str, Any]) -> _Server:
    """Read what the server says of itself. A replica that hangs is not waited for, unless there is no other."""
    told = [replication.get(f"slave{n}", {}) for n in range(int(replication.get("connected_slaves", 0)))]
    online = [replica for replica in told if replica.get("state") == "online"]
    well = [replica for replica in online if replica["lag"] <= _LAG_S] or online[:1]
    return _Server(str(about.get("run_id", "")), frozenset(f"{replica['ip']}:{replica['port']}" for replica in well))


Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


class Batching(Generic[Asked, Answer]):
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
        self._calls = Batching(self._run, most=_PIPELINE_LIMIT)
        self._replicated = Batching(self._run_replicated, most=_PIPELINE_LIMIT, abreast=_REPLICATED_AT_ONCE)
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

"""Runs our Lua scripts, many in one round trip, and waits for Redis replicas where a write must not be lost.

Concurrent calls share one pipeline (group commit). Each caller gets its own answer; a lost connection fails all of
them. The Redis client repeats a script whose answer was lost, so every script must allow a repetition at any later
time.

Redis answers a write before its replicas have it. Some writes must not be lost: a push or a statement before its 202,
an effect's ``sent`` before its first byte. ``WAIT`` follows them in the same pipeline, because it covers only the
writes of its own connection. Without replicas there is no ``WAIT``.

``WAIT 1`` is enough if the master dies, because the sentinels promote the most advanced replica. It is not enough if a
living master is replaced: for a second the other replicas go on confirming the old master's writes (*measured*). So we
wait for all replicas, and ask the server in the same pipeline which it has. If that has changed, the sentinels are
asked whether the master is being replaced; if it is, nothing counts as confirmed.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar, get_args, runtime_checkable

from redis.asyncio import Redis
from redis.commands.core import AsyncScript
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError

from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.metrics.counting import Figures
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.script import Arg, Script, ScriptName

WITHIN_MS: Final = 100
"""How long a write waits for replicas, in milliseconds. If none confirms it, the write stands and is counted."""

POLL_EVERY_S: Final = 1.0
"""How often a server without replicas is asked whether it has any, in seconds. Only writes ask."""

_LAG_S: Final = 2
"""A replica that has been silent for longer, in seconds, is not waited for. Healthy ones report every second."""


Address = tuple[str, int]
"""Host and port, as the sentinels name them."""


class Unconfirmed(Exception):
    """Redis has a write, and no replica confirmed it in time although there are some: a failover could lose it.

    The argument is the answer to the write.
    """


@runtime_checkable
class Watched(Protocol):
    """A client of a server that sentinels watch."""

    connection_pool: Any

    async def is_replaced(self, address: Address) -> bool:
        """Ask the sentinels whether they have replaced the master at this address, or are replacing it."""


class _Server(NamedTuple):
    """A server's address if sentinels watch it, its replicas, and how often one has come so far."""

    address: Address | None = None
    replicas: frozenset[str] = frozenset()
    arrivals: int = 0


class Replication:
    """Asks one server's replicas for confirmation, and counts writes that none confirmed."""

    def __init__(self, figures: Figures, *, key: str) -> None:
        self._figures = figures
        self._key = key
        self._server = _Server()
        self._awaited = 0
        self._asked_at_s = -POLL_EVERY_S

    async def execute(self, redis: Any, pipe: Any, *, only_at: Address | None = None, must: bool = False) -> list[Any]:
        """Execute a pipeline, and wait for the replicas if there are any. Return the answers of its commands.

        If no replica confirmed it, and one ``must``, each answer but an error is `Unconfirmed`.

        Raises:
            redis.exceptions.ConnectionError: The server is being replaced, and the write may be lost with it; or it is
                not the one at ``only_at``.
        """
        added = self._ask(pipe)
        connection = None
        if added and isinstance(redis, Watched):
            # Taken here, because the pipeline gives it back before we can read where it led.
            connection = pipe.connection = await redis.connection_pool.get_connection()
        answers: list[Any] = await pipe.execute(raise_on_error=False)
        if added:
            address = (connection.host, connection.port) if connection else None
            if only_at not in {None, address}:
                raise RedisConnectionError("the master was replaced")
            is_confirmed = await self._judge(redis, answers[-added:], address)
            del answers[-added:]
            if must and not is_confirmed:
                return [one if isinstance(one, Exception) else Unconfirmed(one) for one in answers]
        return answers

    def _ask(self, pipe: Any) -> int:
        """Add a wait for the replicas to a pipeline. Return how many answers that adds.

        Without replicas it only asks, and only now and then, whether there are any.
        """
        if self._awaited:
            pipe.execute_command("WAIT", self._awaited, WITHIN_MS)
        elif time.monotonic() - self._asked_at_s < POLL_EVERY_S:
            return 0
        pipe.info("stats")
        pipe.info("replication")
        return 3 if self._awaited else 2

    async def _judge(self, redis: Any, answers: Sequence[Any], address: Address | None) -> bool:
        """Evaluate what ``_ask`` was answered, and count a write that no replica confirmed (0, or an error instead).

        Return whether one did, or there is none.

        ``address``: of the server that answered, if sentinels watch it. They are asked if it is another server than
        before, its replicas have changed, or one did not confirm: that one may be about to take over.
        """
        *waited, stats, replication = answers
        if not (isinstance(stats, dict) and isinstance(replication, dict)):  # a server may not support the question
            stats, replication = {}, {}
        replicas = [replication.get(f"slave{n}", {}) for n in range(int(replication.get("connected_slaves", 0)))]
        server = _server(address, stats, replicas)
        confirmed = waited[0] if waited and isinstance(waited[0], int) else 0
        is_sure = bool(waited) and confirmed >= len(replicas) and server == self._server
        if address and not is_sure and await redis.is_replaced(address):
            await redis.connection_pool.disconnect(inuse_connections=False)
            raise RedisConnectionError("the master is being replaced")
        self._server, self._awaited, self._asked_at_s = server, _healthy(replicas), time.monotonic()
        if waited:
            if not confirmed:
                self._figures.count(figure.WRITES_UNREPLICATED)
            return bool(confirmed)
        if self._awaited:
            async with redis.pipeline(transaction=False) as pipe:
                pipe.set(self._key, "")  # WAIT covers what its own connection wrote, and everything before that
                [answer] = await self.execute(redis, pipe, only_at=address, must=True)
                return not isinstance(answer, Exception)
        return True


def _server(address: Address | None, stats: Mapping[str, Any], replicas: Sequence[Mapping[str, Any]]) -> _Server:
    names = frozenset(f"{replica.get('ip')}:{replica.get('port')}" for replica in replicas)
    return _Server(address, names, stats.get("sync_full", 0) + stats.get("sync_partial_ok", 0))


def _healthy(replicas: Sequence[Mapping[str, Any]]) -> int:
    """Count the replicas to wait for. One that hangs is left out, unless there is no other."""
    online = [replica for replica in replicas if replica.get("state") == "online"]
    return sum(replica["lag"] <= _LAG_S for replica in online) or len(online[:1])


Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


class Batching(Generic[Asked, Answer]):
    """Collects concurrent requests into batches."""

    def __init__(
        self,
        together: Callable[[Sequence[Asked]], Awaitable[Sequence[Answer | Exception]]],
        *,
        most: int,
        at_once: int = 1,
        further_from: int = 1,
    ) -> None:
        """Set up. ``together`` handles a batch, and returns the answers in order; an exception is the answer to all.

        ``further_from``: how many requests must wait before a further batch is sent while one is in flight.
        """
        self._together = together
        self._most = most
        self._further_from = further_from
        self._waiting: list[tuple[Asked, asyncio.Future[Answer]]] = []
        self._at_once = at_once
        self._senders: set[asyncio.Task[None]] = set()

    async def ask(self, asked: Asked, *, within_s: float | None = None) -> Answer:
        """Submit a request, and return its answer.

        Args:
            asked: The request.
            within_s: How long to wait, in seconds. It uses a timer, because ``asyncio.timeout`` costs ten times as
                much.

        Raises:
            Exception: What the batch raised, or returned for this request.
            TimeoutError: No answer in time; the request may still be carried out.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        self._waiting.append((asked, future))
        if not self._senders or (len(self._senders) < self._at_once and len(self._waiting) >= self._further_from):
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
                await asyncio.sleep(0)  # include whatever is submitted in this turn of the loop
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
            if not isinstance(error, Exception):
                raise
            return  # every waiter has it; what was asked meanwhile is sent next
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
    """Copy an exception for one more waiter, because a shared one would collect all their tracebacks."""
    if isinstance(error, asyncio.CancelledError):
        return asyncio.CancelledError()
    try:
        return type(error)(*error.args)
    except TypeError:
        return RedisError(str(error))


ScriptCall = tuple[AsyncScript, Sequence[str], Sequence[Arg]]

_PIPELINE_LIMIT = 256
_REPLICATED_AT_ONCE = 3
"""Pipelines that wait for replicas at the same time. Other pipelines do not queue behind them."""

_FULL = 64
"""Calls in a full pipeline."""
_FULL_AT_ONCE = 3
"""Full pipelines in flight under load. With one, all calls of a worker soon move in step: all wait for Redis,
then all for the service, and the worker makes a tenth fewer requests (*measured*)."""


class Scripts:
    """Runs scripts on one Redis connection pool, and collects concurrent calls into pipelines."""

    def __init__(
        self,
        redis: Redis,
        figures: Figures | None = None,
        *,
        keys: Keys,
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        self._redis = redis
        self._now_ms = now_ms
        self._replication = Replication(Figures() if figures is None else figures, key=keys.replicated)
        self._known = {name: Script(keys, name) for name in get_args(ScriptName)}
        self._scripts = {name: AsyncScript(redis, script.source) for name, script in self._known.items()}
        self._calls = Batching(self._run, most=_FULL, at_once=_FULL_AT_ONCE, further_from=_FULL)
        self._replicated = Batching(
            partial(self._run, replicated=True), most=_PIPELINE_LIMIT, at_once=_REPLICATED_AT_ONCE
        )
        self._confirmed = Batching(
            partial(self._run, replicated=True, must=True), most=_PIPELINE_LIMIT, at_once=_REPLICATED_AT_ONCE
        )
        self._loaded = False

    def now(self) -> int | str:
        """Return the time argument of scripts, in milliseconds; empty means Redis's own clock."""
        return self._now_ms() if self._now_ms else ""

    async def call(
        self,
        name: ScriptName,
        /,
        *,
        rest: Sequence[Arg] = (),
        replicated: bool = False,
        confirmed: bool = False,
        within_s: float | None = None,
        **given: Arg,
    ) -> Any:
        """Run a script and return its answer.

        ``rest`` is what it takes at the end, ``given`` what else its first lines name (`Script`). ``replicated``: wait
        until the replicas, if any, have its writes; ``confirmed``: one must.

        Raises:
            TypeError: The script takes something else.
            Unconfirmed: The script ran, and no replica ``confirmed`` it. The argument is its answer.
            redis.exceptions.RedisError: Redis is down, refuses writes, or the script failed.
            TimeoutError: No answer in time; the script may still run.
        """
        calls = self._confirmed if confirmed else self._replicated if replicated else self._calls
        arguments = self._known[name].arguments(self.now(), given, rest)
        return await calls.ask((self._scripts[name], *arguments), within_s=within_s)

    async def _run(self, calls: Sequence[ScriptCall], *, replicated: bool = False, must: bool = False) -> list[Any]:
        if not self._loaded:
            await self._load()
        answers = await self._evaluate(calls, replicated, must)
        lost = [n for n, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
        if lost:
            await self._load()
            again = await self._evaluate([calls[n] for n in lost], replicated, must)
            for n, answer in zip(lost, again, strict=True):
                answers[n] = answer
        return answers

    async def _evaluate(self, calls: Sequence[ScriptCall], replicated: bool, must: bool) -> list[Any]:
        async with self._redis.pipeline(transaction=False) as pipe:
            for script, keys, args in calls:
                pipe.evalsha(script.sha, len(keys), *keys, *args)
            if replicated:
                return await self._replication.execute(self._redis, pipe, must=must)
            answers: list[Any] = await pipe.execute(raise_on_error=False)
            return answers

    async def _load(self) -> None:
        async with self._redis.pipeline(transaction=False) as pipe:
            for script in self._scripts.values():
                pipe.script_load(script.script)
            await pipe.execute()
        self._loaded = True

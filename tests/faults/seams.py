"""Injects failures into a worker at its two seams: where it talks to Redis and to the service.

Every command or request is a *crossing* of a seam. A planned failure happens at the n-th crossing. After a
worker dies, all its further crossings are cancelled, as with SIGKILL. A frozen worker stops with all its tasks until it
is thawed, as with SIGSTOP.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self, TypeVar

import httpx
from redis.exceptions import ConnectionError as RedisConnectionError

T = TypeVar("T")


class Seam(StrEnum):
    """What a worker talks to."""

    REDIS = "redis"
    HTTP = "http"


class Failure(StrEnum):
    """What happens to a worker at a crossing, ``before`` or ``after`` the other side carries out the request.

    ``lose`` means that the worker gets an error instead of an answer.
    """

    DIE_BEFORE = "die before"
    DIE_AFTER = "die after"
    FREEZE_BEFORE = "freeze before"
    FREEZE_AFTER = "freeze after"
    LOSE_BEFORE = "lose before"
    LOSE_AFTER = "lose after"
    TWICE = "twice"  # Redis only: the answer was lost, and the client repeats the whole pipeline


_REPEATS = frozenset({Failure.TWICE})
_LETHAL = frozenset({Failure.DIE_BEFORE, Failure.DIE_AFTER})
_FREEZING = frozenset({Failure.FREEZE_BEFORE, Failure.FREEZE_AFTER})
_APPLIED = frozenset({Failure.DIE_AFTER, Failure.FREEZE_AFTER, Failure.LOSE_AFTER, Failure.TWICE})


@dataclass(slots=True)
class PlannedFailure:
    """A failure at the n-th crossing from now. ``only`` limits the count to crossings whose name contains it."""

    failure: Failure
    seam: Seam
    crossings: int
    only: str = ""

    def happens_here(self, seam: Seam, about: str) -> bool:
        """Count a crossing; tell whether the failure happens at it."""
        if seam is not self.seam or self.only not in about:
            return False
        self.crossings -= 1
        return self.crossings == 0


@dataclass(slots=True)
class WorkerState:
    """Whether a worker is dead or frozen, and the failure that is planned for it.

    ``crossed`` counts all crossings, and ``inside`` those under way. ``froze_at`` is the seam at which the worker was
    frozen. ``after_each`` is called after each crossing, before the worker gets the answer.
    """

    planned: PlannedFailure | None = None
    is_dead: bool = False
    is_frozen: bool = False
    froze_at: Seam | None = None
    crossed: int = 0
    inside: int = 0
    after_each: Callable[[], Awaitable[None]] | None = None
    _thawed: asyncio.Event = field(default_factory=asyncio.Event)

    def thaw(self) -> None:
        """Let a frozen worker continue."""
        self.is_frozen = False
        self._thawed.set()
        self._thawed = asyncio.Event()

    async def cross(
        self, seam: Seam, apply: Callable[[], Awaitable[T]], lost: Callable[[], Exception], *, about: str = ""
    ) -> T:
        """Carry out a worker's request to the other side, unless the planned failure happens here.

        Raises:
            asyncio.CancelledError: The worker is dead.
        """
        await self._stand_still()
        failure = self._failure_here(seam, about)
        if failure is not None and failure not in _APPLIED:
            await self._fail(failure, seam, lost)
        answer = await self._apply(apply)
        if failure in _REPEATS:
            answer = await self._apply(apply)
        elif failure is not None and failure in _APPLIED:
            await self._fail(failure, seam, lost)
        await self._stand_still()
        return answer

    def _failure_here(self, seam: Seam, about: str) -> Failure | None:
        self.crossed += 1
        if self.planned is None or not self.planned.happens_here(seam, about):
            return None
        failure, self.planned = self.planned.failure, None
        return failure

    async def _apply(self, apply: Callable[[], Awaitable[T]]) -> T:
        self.inside += 1
        try:
            answer = await apply()
            if self.after_each is not None:
                await self.after_each()
            return answer
        finally:
            self.inside -= 1

    async def _fail(self, failure: Failure, seam: Seam, lost: Callable[[], Exception]) -> None:
        if failure in _LETHAL:
            self.is_dead = True
        elif failure in _FREEZING:
            self.is_frozen, self.froze_at = True, seam
        else:
            raise lost()
        await self._stand_still()

    async def _stand_still(self) -> None:
        while self.is_frozen and not self.is_dead:
            await self._thawed.wait()
        if self.is_dead:
            raise asyncio.CancelledError


class Wire(httpx.AsyncBaseTransport):
    """The HTTP seam. ``witness`` sees every request when it reaches the service, and every answer."""

    def __init__(self, inner: httpx.AsyncBaseTransport, state: WorkerState, witness: "Witness") -> None:
        self._inner = inner
        self._state = state
        self._witness = witness

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Pass a request on. Logins are not disturbed: other tests cover them."""
        if request.url.path.startswith("/external/token"):
            return await self._inner.handle_async_request(request)
        path = request.url.path
        return await self._state.cross(
            Seam.HTTP, lambda: self._pass_on(request), lambda: httpx.ReadError("cut"), about=path
        )

    async def _pass_on(self, request: httpx.Request) -> httpx.Response:
        was_frozen = self._state.froze_at is Seam.HTTP
        self._state.froze_at = None
        try:
            await self._witness.request(request, was_frozen=was_frozen)
        except AssertionError as broken:
            self._witness.broken.append(broken)
        response = await self._inner.handle_async_request(request)
        await response.aread()
        self._witness.answer(request, response)
        return httpx.Response(response.status_code, headers=response.headers, content=response.content)


class Witness:
    """Gets every request and answer at the HTTP seam. This base class ignores them.

    ``broken`` collects broken promises. They are not raised at once, because the client would treat them as a network
    error.
    """

    def __init__(self) -> None:
        self.broken: list[AssertionError] = []

    async def request(self, request: httpx.Request, *, was_frozen: bool) -> None:
        """Handle a request at the service. ``was_frozen``: the process was frozen just before its first byte."""

    def answer(self, request: httpx.Request, response: httpx.Response) -> None:
        """Handle the service's answer before the worker gets it."""


class Line:
    """The Redis seam: each pipeline is a crossing.

    Args:
        server: Returns a client of the current server, which a failover changes.
        state: The state of the worker that uses this client.
        now_ms: The time that scripts are given. A worker that was frozen before it sent one would give an old time, while
            in production Redis reads its own clock.
    """

    def __init__(self, server: Callable[[], Any], state: WorkerState, now_ms: Callable[[], int] | None = None) -> None:
        self._server = server
        self.state = state
        self._now_ms = now_ms

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server(), name)

    def pipeline(self, **options: Any) -> "_Pipeline":
        """Begin a pipeline, which is one crossing."""
        return _Pipeline(self.state, self._server, options, self._now_ms)


class _Pipeline:
    """Collects commands and sends them when executed; a planned failure may send them twice or not at all."""

    def __init__(
        self,
        state: WorkerState,
        server: Callable[[], Any],
        options: dict[str, Any],
        now_ms: Callable[[], int] | None,
    ) -> None:
        self._state = state
        self._server = server
        self._options = options
        self._now_ms = now_ms
        self._commands: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._commands = []

    def __getattr__(self, name: str) -> Callable[..., "_Pipeline"]:
        def queue(*args: Any, **named: Any) -> "_Pipeline":
            self._commands.append((name, args, named))
            return self

        return queue

    async def execute(self, raise_on_error: bool = True) -> list[Any]:
        """Send everything that was queued, as one crossing."""
        return await self._state.cross(
            Seam.REDIS, lambda: self._execute(raise_on_error), lambda: RedisConnectionError("the answer was lost")
        )

    async def _execute(self, raise_on_error: bool) -> list[Any]:
        async with self._server().pipeline(**self._options) as pipe:
            for name, args, named in self._commands:
                getattr(pipe, name)(*self._at_present(name, args), **named)
            answers: list[Any] = await pipe.execute(raise_on_error=raise_on_error)
        return answers

    def _at_present(self, name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return a command's arguments, with the present time if it is a script."""
        if name != "evalsha" or self._now_ms is None:
            return args
        clock = 2 + args[1]  # after the script, the number of keys, and the keys
        return (*args[:clock], self._now_ms(), *args[clock + 1 :])

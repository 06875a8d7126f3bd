"""Named points at which a worker is killed or frozen, and a worker that contains them, for the tests of crashes.

``python -m tests.faults.crashpoints POINT:ACTION`` runs a worker whose store and transports pass the points. When it
first passes POINT, ``kill`` sends it SIGKILL and ``stop=SECONDS`` freezes it for that long.
crash_matrix.toml has the result of a crash at each point. The points are:

================================================  ======================================================================
point                                             seam
================================================  ======================================================================
``call.claimed``, ``call.folded``                 after a ``Store.claim`` that hands out a call; folding does no I/O
``listing.claimed``                               after a ``Store.claim`` that hands out an institution
``look.before-asked``, ``look.after-asked``       before and after ``Store.request_listing`` by a call
``check.before-booked``, ``check.after-booked``   before and after a ``Store.keep`` with ``book_check``
``*.before-intended``, ``*.after-intended``       before and after a ``Store.keep`` whose lines say ``intended``
``*.before-sent``, ``*.after-sent``               before and after a ``Store.keep`` whose lines say ``sent``
``assign.before-intended``,                       as ``assign.before-sent``: the intention to assign is saved together
``assign.after-intended``                         with its ``sent``
``*.first-byte``                                  in the transport's callback, after the guard, before the write
``*.mid-request``                                 `MID_REQUEST_S` after the transport got the request, if it still waits
``*.after-request``                               after the transport received the whole answer
``listing.told``                                  after ``Listings.listed``: every call in the page got its note
``*.before-save``, ``*.after-save``               before and after ``Store.save``: of ``settle`` or ``drop`` if its
                                                  lines say so, else of the claim's last look, check or effect, else
                                                  of its read
================================================  ======================================================================
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any
from urllib.parse import unquote

import httpx
from structlog.typing import FilteringBoundLogger

from callkeeper.app.logs import set_up_logging
from callkeeper.app.settings import WorkerSettings
from callkeeper.app.wiring import run_worker
from callkeeper.calls.claimed_item import ClaimedItem, Placement
from callkeeper.calls.item_names import CallId, parse_member
from callkeeper.calls.store.claims import Store
from callkeeper.calls.store.inbox import Ask
from callkeeper.calls.store.last_listing import Listings
from callkeeper.calls.trail import Entry
from callkeeper.service import ServiceConfig, TokenStore
from callkeeper.service.aiohttp_transport import FIRST_BYTE, effects_transport, reads_transport
from callkeeper.service.answer_tap import See
from callkeeper.service.client import Reseller
from callkeeper.service.exchange import Observe
from workers.runtime import WorkerRuntime

_REQUEST = ("mid-request", "after-request")
_SAVE = ("before-save", "after-save")
_BEFORE_EFFECT = ("before-intended", "after-intended", "before-sent", "after-sent", "first-byte")
_STEPS = {
    "call": ("claimed", "folded"),
    "look": ("before-asked", "after-asked", *_SAVE),
    "read": (*_REQUEST, *_SAVE),
    "check": ("before-booked", "after-booked", *_REQUEST, *_SAVE),
    "assign": (*_BEFORE_EFFECT, *_REQUEST, *_SAVE),
    "enroll": (*_BEFORE_EFFECT, *_REQUEST, *_SAVE),
    "reject": (*_BEFORE_EFFECT, *_REQUEST, *_SAVE),
    "settle": _SAVE,
    "drop": _SAVE,
    "listing": ("claimed", *_REQUEST, "told", *_SAVE),
}
POINTS = tuple(f"{step}.{moment}" for step, moments in _STEPS.items() for moment in moments)

MID_REQUEST_S = 1.0
"""Time from the start of a request to ``mid-request``. Tests make the service slower than that."""

_REQUESTS = {"queue": "listing", "assign": "assign", "enroll": "enroll", "reject-voice": "reject"}
"""Steps by the last part of the path of their requests."""

_step: ContextVar[str] = ContextVar("step", default="wait")
"""The step of the current claim. Every claim has its own task, and so its own context."""

_read: set[str] = set()
"""The calls that were read since they were last saved. A read has a task of its own, within the claim's."""


class Crashpoint:
    """The point at which the worker crashes, and how. It crashes once.

    Raises:
        ValueError: The plan is not ``POINT:ACTION``, or there is no such point.
    """

    def __init__(self, plan: str) -> None:
        self.point, _, self._action = plan.partition(":")
        if self.point not in POINTS:
            raise ValueError(f"there is no point {self.point!r}")
        if self._action != "kill" and not self._action.startswith("stop="):
            raise ValueError(f"{self._action!r} is neither kill nor stop=SECONDS")
        self._has_struck = False

    def pass_by(self, *points: str) -> None:
        """Pass points that share a seam; die or freeze if the chosen point is among them."""
        if self.point not in points or self._has_struck:
            return
        self._has_struck = True
        sys.stdout.flush()
        if self._action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        _freeze(float(self._action.partition("=")[2]))


def _freeze(seconds: float) -> None:
    """Stop this process. A child process, which is not stopped, continues it later."""
    wake = f"sleep {seconds}; kill -CONT {os.getpid()}"
    subprocess.Popen(["/bin/sh", "-c", wake], start_new_session=True)  # noqa: S603  (our own numbers)
    os.kill(os.getpid(), signal.SIGSTOP)


class CrashingStore(Store):
    """Passes the points before and after each write."""

    crash: Crashpoint

    async def claim(self, limit: int, **options: Any) -> list[ClaimedItem]:
        """Claim, and pass the points after a claim."""
        claimed = await super().claim(limit, **options)
        for item in claimed:
            is_call = isinstance(parse_member(item.member), CallId)
            self.crash.pass_by(*(("call.claimed", "call.folded") if is_call else ("listing.claimed",)))
        return claimed

    async def request_listing(self, institution_key: str, ask: Ask) -> None:
        """Ask, and pass the points around it. Only calls ask for a wide look."""
        if ask is not Ask.WIDE:
            await super().request_listing(institution_key, ask)
            return
        _step.set("look")
        self.crash.pass_by("look.before-asked")
        await super().request_listing(institution_key, ask)
        self.crash.pass_by("look.after-asked")

    async def keep(self, item: ClaimedItem, record: bytes | None = None, **options: Any) -> None:
        """Write an intention, a booking, a ``sent`` or the progress of a listing, and pass the points around it."""
        before, after = _written(options.get("entries", ()), options.get("book_check"))
        self.crash.pass_by(*before)
        await super().keep(item, record, **options)
        self.crash.pass_by(*after)

    async def save(self, item: ClaimedItem, record: bytes | None, placement: Placement, **options: Any) -> None:
        """Save the record and end the claim, and pass the points around it."""
        said = {entry.what for entry in options.get("entries", ())}
        step = "settle" if "settled" in said else "drop" if "dropped" in said else _step.get()
        match parse_member(item.member):
            case CallId(voice_id=voice_id):
                step = "read" if step == "wait" and voice_id in _read else step
                _read.discard(voice_id)
            case _:
                step = "listing"
        self.crash.pass_by(f"{step}.before-save")
        await super().save(item, record, placement, **options)
        self.crash.pass_by(f"{step}.after-save")


def _written(entries: list[Entry], book_check: int | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the points to pass before and after a record is kept."""
    if book_check is not None:
        _step.set("check")
        return ("check.before-booked",), ("check.after-booked",)
    lines = {entry.what: entry.kind for entry in entries if entry.what in {"intended", "sent"}}
    if not lines:
        return (), ()
    what, step = ("sent", str(lines["sent"])) if "sent" in lines else ("intended", str(lines["intended"]))
    _step.set(step)
    shared = ("assign.before-intended", "assign.after-intended") if step == "assign" else ()
    return (*shared, f"{step}.before-{what}"), (f"{step}.after-{what}",)


class CrashingListings(Listings):
    """Passes the point after it has left a note for every call of a page."""

    crash: Crashpoint

    async def listed(self, *args: Any) -> None:
        """Leave a note on each listed call, and pass the point after it."""
        await super().listed(*args)
        self.crash.pass_by("listing.told")


class CrashingTransport(httpx.AsyncBaseTransport):
    """Passes the points of a request."""

    def __init__(self, inner: httpx.AsyncBaseTransport, crash: Crashpoint) -> None:
        self._inner = inner
        self._crash = crash

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request and wait for its whole answer."""
        step, crash = _step_of(request), self._crash
        if FIRST_BYTE in request.extensions:
            request.extensions[FIRST_BYTE] = self._announced(request.extensions[FIRST_BYTE], f"{step}.first-byte")
        middle = asyncio.get_running_loop().call_later(MID_REQUEST_S, crash.pass_by, f"{step}.mid-request")
        try:
            answer = await self._inner.handle_async_request(request)
            assert isinstance(answer.stream, httpx.AsyncByteStream)
            body = b"".join([chunk async for chunk in answer.stream])
            await answer.stream.aclose()
        finally:
            middle.cancel()
        crash.pass_by(f"{step}.after-request")
        return httpx.Response(answer.status_code, headers=answer.headers.raw, stream=httpx.ByteStream(body))

    def _announced(self, announce: Callable[[], None], point: str) -> Callable[[], None]:
        def first_byte() -> None:
            announce()
            self._crash.pass_by(point)

        return first_byte

    async def aclose(self) -> None:
        """Close the transport below."""
        await self._inner.aclose()


def _step_of(request: httpx.Request) -> str:
    """Return the step that sends a request. A read is the claim's step only if the claim has no other step."""
    path, _, query = str(request.extensions["target"], "ascii").partition("?")
    name = path.rpartition("/")[2]
    if name != "details":
        return _REQUESTS.get(name, name)
    if query == "checkVoiceAuthentication=true":
        return "check"
    _read.add(unquote(path.split("/")[-2]))
    return "read"


class CrashingReseller(Reseller):
    """A client with production's transports, wrapped in those that pass the points."""

    crash: Crashpoint

    def __init__(
        self, config: ServiceConfig, tokens: TokenStore, *, log: FilteringBoundLogger, observe: Observe, see: See
    ) -> None:
        reads = CrashingTransport(reads_transport(config), self.crash)
        effects = CrashingTransport(effects_transport(config), self.crash)
        super().__init__(
            config, tokens, reads_transport=reads, effects_transport=effects, log=log, observe=observe, see=see
        )


class CrashingCrew(WorkerRuntime):
    """A runtime whose store and client pass the points."""

    store_class = CrashingStore
    listings_class = CrashingListings
    client_class = CrashingReseller


def main(plan: str) -> None:
    """Run a worker, configured by its environment, until it crashes or is told to stop."""
    CrashingStore.crash = CrashingListings.crash = CrashingReseller.crash = Crashpoint(plan)
    settings = WorkerSettings.load(os.environ)
    run_worker(settings, set_up_logging(), runtime_class=CrashingCrew)


if __name__ == "__main__":
    main(sys.argv[1])

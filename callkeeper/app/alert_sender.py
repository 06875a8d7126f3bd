"""Sends alerts with apprise, which is synchronous: one at a time, in a daemon thread that is given up at a deadline.

apprise is imported at the first use, because it costs 50 MiB and a second of CPU (*measured*), and only the process that
leads sends. What it and its HTTP library log may contain secrets from the addresses, so of a line only the status is kept
and the kind of error.
"""

import asyncio
import logging
import re
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import islice
from types import ModuleType
from typing import Any, Final, TypeVar

from callkeeper.app.parsing import AlertAddress
from callkeeper.calls.alerts import AlertMessage, Target
from callkeeper.service.network_failure import NetworkFailure, network_failure

T = TypeVar("T")

DEADLINE_S: Final = 20.0
"""For one message, including the import of apprise. It must stay well below the lease of the alert leader."""

NO_ADDRESS: Final = "not an address of apprise"
UNKNOWN: Final = "unknown cause"
BUSY: Final = "an earlier message to it has not ended"

_MOST_CHUNKS: Final = 100
"""Of 10 KiB each. An endless answer must not fill the memory."""

_STATUS: Final = re.compile(r"\berror=(\d{3})\b")


class Undone(Exception):
    """Why a message was not sent, in words of a closed list."""


class AlertSender:
    """Sends messages to the addresses of the settings. A target's name is its position there, from 1."""

    def __init__(self, addresses: Sequence[AlertAddress], *, deadline_s: float = DEADLINE_S) -> None:
        self._addresses = addresses
        self._deadline_s = deadline_s
        self._threads: dict[str, threading.Thread] = {}
        """The last thread of each target: one that hangs gets no second one."""
        self.targets = [Target(str(n), address.is_page_only) for n, address in enumerate(addresses, 1)]

    def called(self, target: str) -> str:
        """Return a target's name for people. Its address is a secret, its scheme is not."""
        return f"{target} ({self._addresses[int(target) - 1].scheme})"

    async def send(self, message: AlertMessage) -> str:
        """Send a message. Return why it was not accepted, in words of a closed list or as a status; empty if it was."""
        url = self._addresses[int(message.target) - 1].url.reveal()
        try:
            return await self._within_deadline(message.target, lambda: _send(url, message))
        except Undone as undone:
            return str(undone)

    async def wrong(self) -> list[str]:
        """Return the targets whose addresses are not valid; none if the check takes too long."""
        urls = [address.url.reveal() for address in self._addresses]
        try:
            services = await self._within_deadline("", lambda: [_service(url) for url in urls])
        except Undone:
            return []
        return [target.name for target, service in zip(self.targets, services, strict=True) if not service]

    async def _within_deadline(self, name: str, work: Callable[[], T]) -> T:
        """Do work in a thread and return its result.

        Raises:
            Undone: It failed, or was given up.
        """
        if (before := self._threads.get(name)) is not None and before.is_alive():
            raise Undone(BUSY)
        loop = asyncio.get_running_loop()
        result: asyncio.Future[T] = loop.create_future()

        def run() -> None:
            try:
                done = partial(result.set_result, work())
            except Exception:  # noqa: BLE001  (a plugin's bug, or no memory; its text may contain the address)
                done = partial(result.set_exception, Undone(UNKNOWN))
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(lambda: result.done() or done())

        thread = self._threads[name] = threading.Thread(target=run, name="alert", daemon=True)
        try:
            thread.start()
            async with asyncio.timeout(self._deadline_s):
                return await result
        except TimeoutError:
            raise Undone(f"no answer within {self._deadline_s:g} s") from None
        except RuntimeError:
            raise Undone("no thread could be started") from None


class RefusalLog(logging.Handler):
    """Keeps why a message was not accepted. apprise tells it only in its log, where it also catches the errors."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.here = threading.local()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the status in a line, or what went wrong when it was written, for the thread that logs."""
        error = sys.exc_info()[1]
        answer = getattr(error, "response", None)  # of requests
        status = getattr(error, "smtp_code", getattr(answer, "status_code", None))
        if found := _STATUS.search(record.getMessage()):
            status = int(found[1])
        if isinstance(status, int):
            self.here.why = f"status {status}"
        elif error is not None and (why := network_failure(error)) != NetworkFailure.OTHER:
            self.here.why = why


_REFUSALS: Final = RefusalLog()


@cache
def _apprise() -> ModuleType:
    """Import apprise. From then on HTTP answers end after a megabyte."""
    import apprise  # noqa: PLC0415  (see above)
    import urllib3  # noqa: PLC0415
    from requests import Response, sessions  # noqa: PLC0415
    from requests.adapters import HTTPAdapter  # noqa: PLC0415

    urllib3.disable_warnings()

    class ShortAnswer(Response):
        def iter_content(self, *args: Any, **options: Any) -> Any:
            return islice(super().iter_content(*args, **options), _MOST_CHUNKS)

    class ShortAnswers(HTTPAdapter):
        def build_response(self, req: Any, resp: Any) -> Any:
            response = super().build_response(req, resp)
            response.__class__ = ShortAnswer
            return response

    vars(sessions)["HTTPAdapter"] = ShortAnswers  # the plugins of apprise open their sessions themselves
    return apprise


def _service(url: str) -> Any:
    """Return what sends to an address; None if it is not valid. Redirects are not followed, and the log is kept back."""
    apprise = _apprise()
    for name in ("apprise", "urllib3"):
        log = logging.getLogger(name)
        log.handlers, log.propagate = [_REFUSALS], False
    asset = apprise.AppriseAsset(http_redirects=False, service_timeout=0)
    return apprise.Apprise.instantiate(url, asset=asset)


def _send(url: str, message: AlertMessage) -> str:
    _REFUSALS.here.why = UNKNOWN
    service = _service(url)
    if not service:
        return NO_ADDRESS
    apprise = _apprise()
    bringer = apprise.Apprise(asset=service.asset)
    bringer.add(service)
    tone, form = apprise.NotifyType(message.tone), apprise.NotifyFormat.TEXT
    is_taken = bringer.notify(body=message.body, title=message.title, notify_type=tone, body_format=form)
    why: str = _REFUSALS.here.why
    return "" if is_taken else why

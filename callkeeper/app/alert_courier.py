"""Sends alerts and validates addresses in child processes that end at a deadline."""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain, repeat
from typing import Any, Final

import msgspec

from callkeeper.app.alert_child import UNKNOWN, AlertNote, Answer, Order
from callkeeper.app.parsing import AlertAddress
from callkeeper.calls.alerts import AlertMessage, Target

DEADLINE_S: Final = 20.0
"""For one target's messages, including the child's start. It must stay well below the lease of the alert leader."""

_KEPT: Final = ("PATH", "LANG", "LC_ALL", "SSL_CERT_FILE", "SSL_CERT_DIR", "TMPDIR")
"""The environment of the child processes: no secrets of ours, no proxy."""


class AlertCourier:
    """Sends messages to the addresses of the settings. A target's name is its position there, from 1."""

    def __init__(self, addresses: Sequence[AlertAddress], *, deadline_s: float = DEADLINE_S) -> None:
        self._addresses = addresses
        self._deadline_s = deadline_s
        self.targets = [Target(str(n), address.is_page_only) for n, address in enumerate(addresses, 1)]

    def called(self, target: str) -> str:
        """Return a target's name for people. Its address is a secret, its scheme is not."""
        return f"{target} ({self._addresses[int(target) - 1].scheme})"

    async def bring(self, messages: Sequence[AlertMessage]) -> dict[AlertMessage, str]:
        """Send messages with one process per target, at the same time.

        Return those that were not accepted, and why: words of a closed list, or a status.
        """
        by_target: dict[str, list[AlertMessage]] = {}
        for message in messages:
            by_target.setdefault(message.target, []).append(message)
        refused = await asyncio.gather(*(self._bring(name, some) for name, some in by_target.items()))
        return {message: why for some in refused for message, why in some.items()}

    async def wrong(self) -> list[str]:
        """Return the targets whose addresses are not valid; none if the check takes too long."""
        answers, _ = await self._run(Order([address.url.reveal() for address in self._addresses]))
        return [self.targets[n].name for each in answers if isinstance(each, list) for n in each]

    async def _bring(self, target: str, messages: Sequence[AlertMessage]) -> Mapping[AlertMessage, str]:
        url = self._addresses[int(target) - 1].url.reveal()
        notes = [AlertNote(message.title, message.body, message.tone) for message in messages]
        answers, end = await self._run(Order([url], notes))
        refusals = chain((each for each in answers if isinstance(each, str)), repeat(end))
        return {message: why for message, why in zip(messages, refusals, strict=False) if why}

    async def _run(self, order: Order) -> tuple[list[Answer], str]:
        """Run a child process; return its answers, and why there are no more."""
        environ = {name: value for name, value in os.environ.items() if name in _KEPT}
        pipe, nowhere = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        command = (sys.executable, "-m", "callkeeper.app.alert_child")
        try:
            child: Any = await asyncio.create_subprocess_exec(  # its type cannot know that both are pipes
                *command, stdin=pipe, stdout=pipe, stderr=nowhere, env=environ
            )
        except OSError:  # the machine has no room for a process
            return [], "no process could be started"
        answers: list[Answer] = []
        try:
            async with asyncio.timeout(self._deadline_s):
                child.stdin.write(msgspec.json.encode(order))
                child.stdin.close()
                async for line in child.stdout:
                    answers.append(msgspec.json.decode(line, type=Answer))  # noqa: PERF401  (a deadline keeps them)
                await child.wait()  # killing one that has just ended would reap it before asyncio does
        except TimeoutError:
            return answers, f"no answer within {self._deadline_s:g} s"
        except (msgspec.MsgspecError, OSError):
            pass
        finally:
            with suppress(ProcessLookupError):
                child.kill()
            await asyncio.shield(child.wait())
        return answers, UNKNOWN

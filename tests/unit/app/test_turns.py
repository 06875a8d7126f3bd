"""Turns of requests: how many of each class are answered at the same time."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from callkeeper.app.turns import PLACES, Class, Turns, class_of

COOKIE = {b"cookie": b"session=1"}
BEARER = {b"authorization": b"Bearer x"}


def scope(path: str, headers: Mapping[bytes, bytes] = {}, query: bytes = b"") -> dict[str, Any]:
    """Return a request without a body."""
    head = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": query}
    return {**head, "headers": list(headers.items())}


class Site:
    """An application that answers nothing until it is let go, behind turns."""

    def __init__(self, most: int = 1000) -> None:
        self.entered: list[str] = []
        self.statuses: list[int] = []
        self.go = asyncio.Event()
        self._turns = Turns(self._answer, most)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert (await receive())["type"] == "http.request"
        self.entered.append(scope["path"])
        await self.go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def ask(self, path: str, headers: Mapping[bytes, bytes] = {}, query: bytes = b"") -> asyncio.Task[None]:
        """Send a request, and let it come as far as it comes."""

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.statuses.append(message["status"])

        task = asyncio.create_task(self._turns(scope(path, headers, query), receive, send))
        await asyncio.sleep(0)
        return task


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        (scope("/login", COOKIE), Class.STRANGER),
        (scope("/login/oidc"), Class.STRANGER),
        (scope("/board"), Class.STRANGER),
        (scope("/desk/stream"), Class.STRANGER),
        (scope("/board/calls", COOKIE), Class.PERSON),
        (scope("/metrics", BEARER), Class.PERSON),
        (scope("/desk/calls", BEARER), Class.DESK),
        (scope("/desk/calls/cu-1/v-1/actions/a", BEARER, b"wait=10"), Class.WAITING),
        (scope("/desk/calls/cu-1/v-1/actions/a", BEARER, b"x=1&wait=10"), Class.WAITING),
        (scope("/desk/calls", BEARER, b"await=10"), Class.DESK),
        (scope("/desk/stream", BEARER, b"wait=10"), Class.STREAM),
        (scope("/board/calls", COOKIE, b"wait=10"), Class.PERSON),
        (scope("/desk/stream", query=b"ticket=1"), Class.STREAM),
        (scope("/board/stream", COOKIE), Class.STREAM),
    ],
)
def test_class_follows_from_the_head(request_: dict[str, Any], kind: Class) -> None:
    """A class is known before anything is asked of Redis; a login is a stranger's, whatever it claims."""
    assert class_of(request_) is kind


async def test_strangers_wait_for_few_places_and_nobody_else_does() -> None:
    """With two hundred strangers few are answered at a time; events, words and people are not behind them."""
    site = Site()
    strangers = [await site.ask("/login") for _ in range(200)]
    assert site.entered == ["/login"] * PLACES[Class.STRANGER]
    others = [await site.ask("/push"), await site.ask("/readyz")]
    others += [await site.ask("/desk/calls", BEARER), await site.ask("/board", COOKIE)]
    assert site.entered[PLACES[Class.STRANGER] :] == ["/push", "/readyz", "/desk/calls", "/board"]
    site.go.set()
    await asyncio.gather(*strangers, *others)
    assert site.statuses == [200] * 204


async def test_whoever_waits_for_an_outcome_keeps_no_other_from_the_desk() -> None:
    """While the service fails for one institution, all its waits last to their end; reads and words are answered."""
    site = Site()
    waits = [await site.ask("/desk/word", BEARER, b"wait=10") for _ in range(300)]
    waits.append(await site.ask("/desk/calls", BEARER))
    assert site.entered[-1] == "/desk/calls"
    site.go.set()
    await asyncio.gather(*waits)
    assert site.statuses == [200] * 301


async def test_room_is_kept_for_events() -> None:
    """What waits or is answered beyond the room is refused, but no event is."""
    site = Site(most=2)
    waiting = [await site.ask("/login") for _ in range(3)]
    assert site.statuses == [503]
    waiting.append(await site.ask("/push"))
    site.go.set()
    await asyncio.gather(*waiting)
    assert site.statuses == [503, 200, 200, 200]

"""What one person may take of a web process: streams and searches at a time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from callkeeper.desk import quotas
from callkeeper.desk.quotas import SEARCHES, SEARCHES_PER_PERSON, OpenStreams, QuotaUsed, SearchTurns


@pytest.fixture(autouse=True)
def _refuse_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas, "REFUSED_AFTER_S", 0.0)


async def test_searches_of_one_person_do_not_hold_up_others() -> None:
    """One runs and one waits; the third of the same person is refused, and another person's search comes next but one."""
    turns, order = SearchTurns(), []
    may_end = asyncio.Event()

    async def search(who: str) -> None:
        async with turns.turn(who):
            order.append(who)
            await may_end.wait()

    tasks = [asyncio.ensure_future(search(who)) for who in ["ann"] * SEARCHES_PER_PERSON + ["bob"]]
    await asyncio.sleep(0)
    with pytest.raises(QuotaUsed, match="Your last searches"):
        await search("ann")
    may_end.set()
    await asyncio.gather(*tasks)
    assert order == ["ann", "ann", "bob"]
    await search("ann")


async def test_only_so_many_searches_wait() -> None:
    """Many people together have a bound too. A search that is given up leaves its place."""
    turns = SearchTurns()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(turns.turn("first"))
        tasks = [asyncio.ensure_future(_turn(turns, f"p-{number}")) for number in range(SEARCHES - 1)]
        await asyncio.sleep(0)
        with pytest.raises(QuotaUsed, match="Too many searches"):
            await _turn(turns, "late")
        tasks[0].cancel()
        await asyncio.sleep(0)
        late = asyncio.ensure_future(_turn(turns, "late"))
        await asyncio.sleep(0)
        assert not late.done()
    await asyncio.gather(*tasks[1:], late)


async def _turn(turns: SearchTurns, who: str) -> None:
    async with turns.turn(who):
        pass


async def test_streams_of_one_person_are_bounded() -> None:
    """Only streams that are being sent count, each person's alone."""
    streams, ends = OpenStreams(2), asyncio.Event()

    async def events() -> AsyncIterator[bytes]:
        yield b": alive\n\n"
        await ends.wait()

    async def receive() -> dict[str, str]:
        await ends.wait()
        return {"type": "http.disconnect"}

    async def send(_message: object) -> None:
        pass

    scope = {"type": "http", "asgi": {"spec_version": "2.3"}}
    open_ones = [asyncio.ensure_future(streams.response("ann", events())(scope, receive, send)) for _ in range(2)]
    await asyncio.sleep(0.01)
    with pytest.raises(QuotaUsed):
        streams.response("ann", events())
    streams.response("bob", events())
    ends.set()
    await asyncio.gather(*open_ones)
    streams.response("ann", events())

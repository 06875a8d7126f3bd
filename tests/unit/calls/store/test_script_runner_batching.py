"""The group commit: requests of the same moment share a batch, and each gets its own answer."""

import asyncio
from collections.abc import Sequence

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from callkeeper.calls.store.script_runner import Batching


class Doubling:
    """Doubles numbers, and notes in which batches they came; it fails a batch that holds a 13, and refuses a 7 alone."""

    def __init__(self, error: type[Exception] = RedisConnectionError) -> None:
        self.batches: list[list[int]] = []
        self.error = error

    async def together(self, numbers: Sequence[int]) -> list[int | Exception]:
        """Answer each number in its place."""
        self.batches.append(list(numbers))
        await asyncio.sleep(0)
        if 13 in numbers:
            raise self.error("away")
        return [ValueError("seven") if number == 7 else 2 * number for number in numbers]


async def test_what_is_asked_in_one_moment_goes_in_one_batch() -> None:
    """Requests of one moment share a round trip, batches are bounded, and nothing is done twice."""
    doubling = Doubling()
    gathering = Batching(doubling.together, most=8)
    assert await asyncio.gather(*(gathering.ask(n) for n in range(100, 120))) == [2 * n for n in range(100, 120)]
    assert [len(batch) for batch in doubling.batches] == [8, 8, 4]


async def test_an_answer_that_is_an_error_is_one_callers_alone() -> None:
    """An error for one request does not affect the others of its batch."""
    gathering = Batching(Doubling().together, most=8)
    answers = await asyncio.gather(*(gathering.ask(n) for n in (6, 7, 8)), return_exceptions=True)
    assert [answers[0], type(answers[1]), answers[2]] == [12, ValueError, 16]


@pytest.mark.parametrize("error", [RedisConnectionError, KeyError])
async def test_a_batch_that_fails_fails_all_of_it_and_nothing_after_it(error: type[Exception]) -> None:
    """If a batch fails, each caller gets its own exception, and later requests, also those that waited, are served."""
    gathering = Batching(Doubling(error).together, most=2)
    first, second, third = await asyncio.wait_for(
        asyncio.gather(*(gathering.ask(n) for n in (13, 1, 2)), return_exceptions=True), 5
    )
    assert isinstance(first, error)
    assert isinstance(second, error)
    assert first is not second
    assert third == 4
    with pytest.raises(error):
        await gathering.ask(13)
    assert await gathering.ask(3) == 6


@pytest.mark.parametrize("at_once", [1, 2])
async def test_as_many_batches_are_on_their_way_as_may_be(at_once: int) -> None:
    """Another batch is sent while one is in flight, up to the limit, and never an empty one."""
    under_way: list[Sequence[int]] = []
    most_at_once: list[int] = []
    may_answer = asyncio.Event()

    async def together(numbers: Sequence[int]) -> list[int | Exception]:
        under_way.append(numbers)
        most_at_once.append(len(under_way))
        await may_answer.wait()
        under_way.remove(numbers)
        return list(numbers)

    gathering = Batching(together, most=4, at_once=at_once)
    asked = []
    for n in range(5):
        asked.append(asyncio.ensure_future(gathering.ask(n)))
        for _ in range(5):
            await asyncio.sleep(0)
    assert [list(numbers) for numbers in under_way] == [[0], [1]][:at_once]
    may_answer.set()
    assert await asyncio.gather(*asked) == [0, 1, 2, 3, 4]
    assert max(most_at_once) == at_once


async def test_no_batch_is_empty_when_two_may_take_what_one_asked_for() -> None:
    """If one of two senders takes all requests, the other sends nothing, and later requests are served."""
    doubling = Doubling()
    gathering = Batching(doubling.together, most=8, at_once=2)
    for _ in range(3):
        assert await asyncio.gather(*(gathering.ask(n) for n in (1, 2, 3))) == [2, 4, 6]
    assert [] not in doubling.batches


async def test_another_batch_is_sent_beside_only_once_enough_wait() -> None:
    """With ``further_from``, requests wait for the batch in flight until there are enough for another one."""
    under_way: list[Sequence[int]] = []
    may_answer = asyncio.Event()

    async def together(numbers: Sequence[int]) -> list[int | Exception]:
        under_way.append(numbers)
        await may_answer.wait()
        return list(numbers)

    gathering = Batching(together, most=3, at_once=2, further_from=3)
    asked = []
    for n in range(4):
        asked.append(asyncio.ensure_future(gathering.ask(n)))
        for _ in range(5):
            await asyncio.sleep(0)
        assert [list(numbers) for numbers in under_way] == ([[0]] if n < 3 else [[0], [1, 2, 3]])
    may_answer.set()
    assert await asyncio.gather(*asked) == [0, 1, 2, 3]

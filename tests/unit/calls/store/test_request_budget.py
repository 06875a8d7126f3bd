"""What 503 answers to one process tell of the service's load."""

import pytest

from callkeeper.calls.store.request_budget import AnswerCount
from tests.integration.calls.hand import Hand


@pytest.mark.parametrize(("every", "is_told"), [(2, True), (10, True), (100, False)])
def test_503_counts_if_many_requests_get_it(every: int, is_told: bool) -> None:
    """One 503 in a hundred answers says nothing of the load, one in ten does."""
    hand = Hand()
    count = AnswerCount(lambda: hand.ms / 1000)
    told = False
    for n in range(1000):
        hand.ms += 10
        if n % every:
            count.add()
        else:
            told = count.add_503() or told
    assert told == is_told


def test_few_503_say_nothing() -> None:
    """At one request in two seconds, every second one refused, there is no load that could be lower."""
    hand = Hand()
    count = AnswerCount(lambda: hand.ms / 1000)
    for _ in range(100):
        hand.ms += 2000
        count.add()
        hand.ms += 2000
        assert not count.add_503()

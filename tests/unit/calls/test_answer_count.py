"""What 503 answers to one process tell of the service's load."""

import pytest

from calls.store.request_budget import AnswerCount


@pytest.mark.parametrize(("every", "is_told"), [(2, True), (10, True), (100, False)])
def test_503_counts_if_many_requests_get_it(every: int, is_told: bool) -> None:
    """One 503 in a hundred answers says nothing of the load, one in ten does."""
    count = AnswerCount()
    told = False
    for n in range(1000):
        now_s = 100 + n / 100
        if n % every:
            count.answered(now_s)
        else:
            told = count.overloaded(now_s) or told
    assert told == is_told


def test_few_503_say_nothing() -> None:
    """At one request in two seconds, every second one refused, there is no load that could be lower."""
    count = AnswerCount()
    for n in range(100):
        count.answered(100 + 4 * n)
        assert not count.overloaded(102 + 4 * n)

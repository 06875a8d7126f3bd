"""What answers tell of the service's load, without a service."""

from itertools import count

import pytest

from calls.store.request_budget import PERIOD_S, ServiceStrain

KINDS = ("details", "queue")


def hear(
    strain: ServiceStrain, seconds: float, *, kinds: tuple[str, ...] = KINDS, begin_s: float, lasts_s: float = 5.0
) -> bool:
    """Give ten answers per second, each after ``seconds``; return whether the service was slow at the end."""
    is_slow = False
    for n in count():
        now_s = begin_s + n / 10
        if now_s >= begin_s + lasts_s:
            return is_slow
        strain.look(now_s)
        is_slow = strain.answered(kinds[n % len(kinds)], "cu-1", seconds, now_s)
    return is_slow


def test_latency_that_rises_for_everything_is_told() -> None:
    """Answers to all kinds of requests take much longer than before: after two seconds the service is slow."""
    strain = ServiceStrain()
    assert not hear(strain, 0.05, begin_s=100)
    assert not hear(strain, 0.7, begin_s=105, lasts_s=1.9)
    assert hear(strain, 0.7, begin_s=107)


@pytest.mark.parametrize("seconds", [0.05, 0.5, 5.5])
def test_service_that_was_always_slow_is_not_slow(seconds: float) -> None:
    """However long its answers take: what counts is that they take longer than before."""
    strain = ServiceStrain()
    assert not hear(strain, seconds, begin_s=100, lasts_s=400)


def test_slow_kind_of_request_says_nothing() -> None:
    """Checks ask a voice provider, queues do not. One of them alone may become slow, also if nothing else is asked."""
    strain = ServiceStrain()
    hear(strain, 0.05, begin_s=100)
    for n in range(100):
        is_slow = strain.answered("details", "cu-1", 3.0, 105 + n / 10)
        assert not is_slow
        assert not strain.answered("queue", "cu-1", 0.05, 105 + n / 10)
    assert not hear(strain, 3.0, kinds=("details",), begin_s=115)


def test_slow_institution_says_nothing_of_the_service() -> None:
    """While another institution's answers come as before, the service is not slow."""
    strain = ServiceStrain()
    hear(strain, 0.05, begin_s=100)
    strain.answered("queue", "cu-2", 0.05, 105)
    for n in range(100):
        assert not strain.answered(KINDS[n % 2], "cu-1", 3.0, 105 + n / 10)
        strain.answered("queue", "cu-2", 0.05, 105 + n / 10)


def test_new_institution_says_nothing() -> None:
    """The first answer for an institution has nothing to be compared with."""
    strain = ServiceStrain()
    hear(strain, 0.05, begin_s=100)
    told = []
    for n in range(100):
        strain.answered("queue", f"new-{n}", 3.0, 105 + n / 10)
        told.append(strain.answered(KINDS[n % 2], "cu-1", 3.0, 105 + n / 10))
    assert told[-1]


def test_own_delay_is_not_the_services() -> None:
    """A process that stood still measures long answers; they do not count."""
    strain = ServiceStrain()
    hear(strain, 0.05, begin_s=100)
    for n in range(100):
        if not n % 10:
            strain.look(105 + n / 10)
        assert not strain.answered(KINDS[n % 2], "cu-1", 0.9, 105 + n / 10)


def test_latency_that_stays_is_the_new_normal() -> None:
    """A service that stays slow for some minutes is not slow any more: waiting would not make it faster."""
    strain = ServiceStrain()
    hear(strain, 0.05, begin_s=100)
    assert hear(strain, 1.0, begin_s=105, lasts_s=PERIOD_S / 2)
    assert not hear(strain, 1.0, begin_s=105 + PERIOD_S / 2, lasts_s=2 * PERIOD_S)


@pytest.mark.parametrize(("every", "is_told"), [(2, True), (10, True), (100, False)])
def test_503_counts_if_many_requests_get_it(every: int, is_told: bool) -> None:
    """One 503 in a hundred answers says nothing of the load, one in ten does."""
    strain = ServiceStrain()
    told = False
    for n in range(1000):
        now_s = 100 + n / 100
        if n % every:
            strain.answered("queue", "cu-1", 0.05, now_s)
        else:
            told = strain.overloaded(now_s) or told
    assert told == is_told


def test_few_503_say_nothing() -> None:
    """At one request in two seconds, every second one refused, there is no load that could be lower."""
    strain = ServiceStrain()
    for n in range(100):
        strain.answered("queue", "cu-1", 0.05, 100 + 4 * n)
        assert not strain.overloaded(102 + 4 * n)

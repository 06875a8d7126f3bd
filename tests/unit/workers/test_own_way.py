"""Whether a process's own way to the service is broken, or the service is away."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from math import inf

import pytest
import structlog

from callkeeper.calls.metrics.process_activity import Doing
from callkeeper.calls.metrics.snapshot import Process
from callkeeper.service import (
    AccessRefused,
    AnswerUnreadable,
    CallNotFound,
    CertificateRefused,
    ForeignAnswer,
    LoginRefused,
    NotSent,
    OutcomeUnknown,
    ResellerError,
    ServiceUnavailable,
    TurnedAway,
    Unsendable,
)
from callkeeper.service.endpoints import DETAILS, ENROLL, TOKEN, Endpoint
from callkeeper.service.network_failure import CertificateFault
from tests.unit.calls.specimens import NOW
from workers.own_way import (
    CONNECTED_LATELY_S,
    CONNECTED_STAYS_S,
    FAILURES,
    JUDGED_S,
    LATELY_S,
    PROBE_EVERY_S,
    STAYS_S,
    OwnWay,
    UnansweredRow,
    answered_s_ago,
    was_answered,
)

OWN, OTHER = "box-1-7-aa", "box-2-7-bb"
NO_LOGIN = ServiceUnavailable(TOKEN.name, "the last login got no answer")


def not_sent(because: Exception | None) -> NotSent:
    """Return the error of an effect of which no byte was sent."""
    error = NotSent(ENROLL.name, "nothing was sent")
    error.__cause__ = because
    return error


def foreign(error: ResellerError) -> ResellerError:
    """Return an error of an answer that something else gave."""
    return error.saying((), ForeignAnswer(403, "text/html"))


ARRIVED: dict[str, tuple[Endpoint, BaseException | None, bool | None]] = {
    "answer": (DETAILS, None, True),
    "status 502": (DETAILS, ServiceUnavailable(DETAILS.name, "status 502", 502), True),
    "refusal": (DETAILS, CallNotFound(DETAILS.name, status=404), True),
    "page of a portal": (DETAILS, foreign(ServiceUnavailable(DETAILS.name, "status 403", 403)), False),
    "page of a portal for an effect": (ENROLL, foreign(OutcomeUnknown(ENROLL.name, "status 403", 403)), False),
    "page of a portal for a login": (TOKEN, foreign(LoginRefused(TOKEN.name, "status 403")), False),
    "answer that nobody can read": (DETAILS, AnswerUnreadable(DETAILS.name, "no JSON"), True),
    "429 of an effect": (ENROLL, TurnedAway(ENROLL.name, "status 429"), True),
    "401": (DETAILS, AccessRefused(DETAILS.name, 3.0), True),
    "request that an earlier 401 held back": (DETAILS, AccessRefused(DETAILS.name, 3.0, arrived=False), None),
    "no answer": (DETAILS, ServiceUnavailable(DETAILS.name, "no whole answer"), False),
    "wrong certificate": (DETAILS, CertificateRefused(DETAILS.name, CertificateFault.EXPIRED), False),
    "no connection for an effect": (ENROLL, not_sent(None), False),
    "wrong certificate for an effect": (
        ENROLL,
        not_sent(CertificateRefused(ENROLL.name, CertificateFault.EXPIRED)),
        False,
    ),
    "500 of an effect": (ENROLL, OutcomeUnknown(ENROLL.name, "status 500", 500), True),
    "effect that may have arrived": (ENROLL, OutcomeUnknown(ENROLL.name, "no whole answer"), False),
    "our guard": (ENROLL, not_sent(RuntimeError("frozen too long")), None),
    "value that cannot be sent": (DETAILS, Unsendable(DETAILS.name, "a line break"), None),
    "login without an answer": (TOKEN, ServiceUnavailable(TOKEN.name, "no whole answer"), False),
    "refused login": (TOKEN, LoginRefused(TOKEN.name, "status 401"), True),
    "read after a login of another process failed": (DETAILS, NO_LOGIN, None),
    "effect after a login of another process failed": (ENROLL, not_sent(NO_LOGIN), None),
    "request that was cancelled": (DETAILS, asyncio.CancelledError(), None),
}


@pytest.mark.parametrize(("endpoint", "error", "expected"), ARRIVED.values(), ids=ARRIVED)
def test_only_requests_without_any_answer_speak_against_the_way(
    endpoint: Endpoint, error: ResellerError | None, expected: bool | None
) -> None:
    """Any status is an answer. A login that another process made, and what was held back, show nothing."""
    assert was_answered(endpoint, error) is expected


@pytest.mark.parametrize(
    ("others_s_ago", "silent_s", "is_doubted", "expected"),
    [
        (0.4, 2.0, False, True),
        (0.6, 2.0, False, False),
        (2.9, 6.0, False, True),
        (3.1, 60.0, False, False),
        (6.0, 6.0, False, False),
        (inf, 60.0, False, False),
        (14.0, 60.0, True, True),
        (16.0, 60.0, True, False),
        (inf, 60.0, True, False),
    ],
)
def test_others_can_if_one_was_answered_since_and_lately(
    others_s_ago: float, silent_s: float, is_doubted: bool, expected: bool
) -> None:
    """An answer from the time when this process began to fail proves nothing. A doubt that is there stays longer."""
    row = UnansweredRow(
        LATELY_S, STAYS_S, silent_since_s=100.0 - silent_s, doubted_since_s=50.0 if is_doubted else None
    )
    assert row.others_can(others_s_ago, 100.0) is expected


def process(name: str, doing: Doing | None) -> Process:
    """Return a worker that reports."""
    return Process(name, "worker", 1, NOW - timedelta(hours=1), doing=doing)


def test_only_other_processes_count() -> None:
    """The own report, one of another release, and one of a process that was never answered say nothing."""
    own, silent = process(OWN, Doing(answered_s_ago=0.1)), process(OTHER, Doing())
    assert answered_s_ago([own, silent, process(OTHER, None)], without=OWN) == inf
    answered = [process(OTHER, Doing(answered_s_ago=seconds)) for seconds in (7.0, 4.0)]
    assert answered_s_ago([own, silent, *answered], without=OWN) == 4.0


@dataclass
class Beside:
    """A process beside others, with a clock that tests move."""

    others_s_ago: float = 0.0
    connected_s_ago: float | None = None
    now_s: float = 100.0
    looks: int = 0

    async def processes(self) -> Sequence[Process]:
        """Return another process that reports."""
        self.looks += 1
        await asyncio.sleep(0)
        return [process(OTHER, Doing(answered_s_ago=self.others_s_ago, connected_s_ago=self.connected_s_ago))]

    def way(self) -> OwnWay:
        """Return a way of which nothing is known yet."""
        return OwnWay(
            OWN,
            self.processes,
            lambda: self.now_s,
            structlog.wrap_logger(None, processors=[structlog.testing.LogCapture()]),
        )


async def silent(beside: Beside, *, seconds: float = 6.0, failures: int = FAILURES) -> OwnWay:
    """Return a way on which requests were answered once, and got no answer in so many seconds now."""
    way = beside.way()
    way.answered()
    beside.now_s += 10
    for _ in range(failures):
        await way.failed(seconds)
    return way


async def test_way_is_doubted_after_two_failures_in_two_seconds() -> None:
    """One failure, or two within a second, may be an accident."""
    assert (await silent(Beside())).is_doubted
    assert not (await silent(Beside(), failures=FAILURES - 1)).is_doubted
    assert not (await silent(Beside(), seconds=1.0)).is_doubted
    assert not (await silent(Beside(others_s_ago=9.0))).is_doubted


async def test_process_that_was_never_answered_doubts_at_once() -> None:
    """It has just begun on a bad host: others did not stop being answered at the same moment."""
    way = Beside().way()
    for _ in range(FAILURES):
        await way.failed(0.01)
    assert way.is_doubted


async def test_failures_at_once_are_one_look() -> None:
    """However many requests time out together, all know the result of one look at the others."""
    beside = Beside()
    way = beside.way()
    await asyncio.gather(*(way.failed(6.0) for _ in range(20)))
    assert way.is_doubted
    assert beside.looks == 1


async def test_time_before_the_own_last_answer_does_not_count() -> None:
    """A request that hung while others of this process were answered does not show how long the way is broken."""
    beside = Beside()
    way = beside.way()
    way.answered()
    beside.now_s += 1.0
    for _ in range(FAILURES):
        await way.failed(6.0)
    assert not way.is_doubted


async def test_first_answer_ends_the_doubt() -> None:
    """After an answer the worker works on, and failures are counted anew."""
    way = await silent(Beside())
    way.answered()
    await way.failed(6.0)
    assert not way.is_doubted


async def test_doubt_ends_if_others_are_answered_no_more() -> None:
    """Then it is the service that fails, or nobody else is left."""
    beside = Beside()
    way = await silent(beside)
    beside.now_s, beside.others_s_ago = beside.now_s + 20.0, 20.0
    await way.look()
    assert not way.is_doubted


async def without_new_connections(beside: Beside) -> OwnWay:
    """Return a way on which effects got no answer for 6 s, and a read was answered meanwhile."""
    way = beside.way()
    way.answered(connects=True)
    beside.now_s += 10
    for _ in range(FAILURES):
        await way.failed(6.0, connects=True)
        way.answered()
    await way.look()
    return way


async def test_way_that_lets_no_new_connection_through_is_doubted_although_reads_are_answered() -> None:
    """If others open connections: effects would all fail here. An answer over a kept one does not end the doubt."""
    way = await without_new_connections(Beside(connected_s_ago=3.5))
    assert way.is_doubted
    way.answered()
    assert way.is_doubted
    way.answered(connects=True)
    assert not way.is_doubted


@pytest.mark.parametrize("connected_s_ago", [None, 4.5, CONNECTED_LATELY_S])
async def test_effects_that_fail_for_all_let_nobody_doubt(connected_s_ago: float | None) -> None:
    """Reads of others prove nothing of new connections, nor do effects from before; an older release tells of none."""
    assert not (await without_new_connections(Beside(connected_s_ago=connected_s_ago))).is_doubted


async def test_doubt_of_new_connections_stays_for_a_minute_without_effects_of_others() -> None:
    """A night has few calls. Then nobody is known to be better off."""
    beside = Beside(connected_s_ago=3.5)
    way = await without_new_connections(beside)
    for later_s, is_doubted in ((CONNECTED_STAYS_S - 1, True), (CONNECTED_STAYS_S, False)):
        beside.connected_s_ago, beside.now_s = later_s, beside.now_s + 1
        await way.look()
        assert way.is_doubted is is_doubted


async def test_doubt_of_new_connections_ends_if_others_get_no_answers_at_all() -> None:
    """Then it is the service that fails, though effects of others were answered within the minute."""
    beside = Beside(connected_s_ago=3.5)
    way = await without_new_connections(beside)
    beside.connected_s_ago, beside.others_s_ago, beside.now_s = 20.0, STAYS_S, beside.now_s + 1
    await way.look()
    assert not way.is_doubted


async def test_way_is_broken_once_a_probe_has_failed() -> None:
    """A doubt alone is told to nobody, nor that the next probe is sent while the first one is still under way."""
    beside = Beside()
    way = await silent(beside)
    since_s, told = way.doubted_since_s, []
    for _ in range(3):
        told.append((way.take_probe(), way.take_probe(), way.is_broken, way.told_in(Doing()).cut_off_s))
        beside.now_s += PROBE_EVERY_S
    assert told == [(True, False, False, None)] * 3
    way.probe_ended(since_s)
    assert (way.is_broken, way.told_in(Doing()).cut_off_s) == (True, 6.0)
    way.answered()
    assert way.told_in(Doing(calls=1)) == Doing(calls=1, answered_s_ago=0.0)
    way.answered(connects=True)
    assert way.told_in(Doing()) == Doing(answered_s_ago=0.0, connected_s_ago=0.0)
    assert not way.take_probe()


async def test_what_answers_in_the_place_of_the_service_is_told() -> None:
    """Others see status and content type of it once the way is broken, until the service answers."""
    way = Beside().way()
    await way.failed(0.01, foreign_answer="status 403, text/html")
    await way.failed(6.0)
    assert (way.is_doubted, way.told_in(Doing()).foreign_answer) == (True, "")
    way.probe_ended(way.doubted_since_s)
    assert way.told_in(Doing()).foreign_answer == "status 403, text/html"
    way.answered()
    assert way.told_in(Doing()).foreign_answer == ""


async def test_new_doubt_is_no_broken_way_yet() -> None:
    """What a probe of an earlier doubt found does not count in the next one, also if that probe ends later."""
    beside = Beside()
    way = await silent(beside)
    earlier_s = way.doubted_since_s
    way.probe_ended(earlier_s)
    assert way.is_broken
    way.answered()
    way.probe_ended(earlier_s)
    beside.now_s += 10
    for _ in range(FAILURES):
        await way.failed(6.0)
    way.probe_ended(earlier_s)
    assert way.is_doubted
    assert not way.is_broken


async def test_answer_during_a_look_wins() -> None:
    """If an answer comes while Redis is asked for the others, the way is not doubted."""
    beside = Beside()
    way = beside.way()
    for _ in range(FAILURES - 1):
        await way.failed(6.0)
    looking = asyncio.ensure_future(way.failed(6.0))
    await asyncio.sleep(0)
    way.answered()
    await looking
    assert beside.looks == 1
    assert not way.is_doubted


async def begun(beside: Beside) -> OwnWay:
    """Return a way that was answered a moment ago, and has failed once since."""
    way = beside.way()
    way.answered()
    beside.now_s += 0.1
    await way.failed(0.0)
    return way


async def test_failures_that_come_fast_are_in_question_until_others_can_be_compared() -> None:
    """A proxy answers at once: before anybody can know whose fault it is, there are failures enough for every breaker."""
    beside = Beside()
    way = await begun(beside)
    assert (way.is_in_question, way.leaves_work, way.take_probe()) == (True, False, False), "one may be an accident"
    await way.failed(0.0)
    assert (way.is_in_question, way.leaves_work, way.take_probe()) == (True, True, True)
    beside.now_s += JUDGED_S
    await way.failed(0.0)
    assert (way.is_in_question, way.leaves_work, way.is_doubted) == (False, True, True)


async def test_question_ends_if_others_are_not_answered_either() -> None:
    """The service is away: the breakers handle that."""
    beside = Beside()
    way = await begun(beside)
    await way.failed(0.0)
    beside.others_s_ago, beside.now_s = JUDGED_S, beside.now_s + JUDGED_S
    await way.failed(0.0)
    assert (way.is_in_question, way.leaves_work) == (False, False)


@pytest.mark.parametrize("others_s_ago", [inf, LATELY_S])
async def test_failures_are_not_in_question_if_no_other_is_answered(others_s_ago: float) -> None:
    """There is no other process, or none has just been answered: nobody can say more."""
    way = await begun(Beside(others_s_ago))
    await way.failed(0.0)
    assert not way.is_in_question

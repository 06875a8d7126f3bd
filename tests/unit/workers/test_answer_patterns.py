"""Patterns in many answers: limits, institutions that always fail, slow answers, effects that were turned away."""

from callkeeper.calls.effect_ledger import EffectKind, EffectState
from callkeeper.service import ServiceBusy, ServiceUnavailable, TokenLapsed
from callkeeper.service.endpoints import DETAILS, INSTITUTIONS, QUEUE
from workers.answer_patterns import AnswerPatterns


class Seen:
    """Patterns, with the answers that they report and a clock that is moved by hand."""

    def __init__(self) -> None:
        self.names: list[tuple[str, str]] = []
        self.now_s = 0.0
        self.patterns = AnswerPatterns(lambda _, answer, key, __: self.names.append((answer, key)), lambda: self.now_s)

    def answered(self, key: str, times: int = 1, took_s: float = 0.1) -> None:
        """Let requests be answered."""
        for _ in range(times):
            self.patterns.note(DETAILS, key, None, took_s)

    def failed(self, key: str, error: Exception, times: int = 1) -> None:
        """Let requests fail."""
        for _ in range(times):
            self.patterns.note(QUEUE, key, error, 0.1)

    @property
    def odd(self) -> list[tuple[str, str]]:
        """Return the answers that are not the usual ones."""
        return [name for name in self.names if name[0] != "usual"]


def test_limit_is_told_by_how_many_were_answered_before_it() -> None:
    """A 429 after five answers in a second is a limit of some five."""
    seen = Seen()
    seen.answered("cu-1", 5)
    seen.failed("cu-1", ServiceBusy("queue", "status 429"))
    assert seen.odd == [("limit-5", "cu-1")]


def test_429_after_few_answers_is_no_limit() -> None:
    """Where thirty were answered in a second before, a 429 after two has another reason."""
    seen = Seen()
    seen.answered("cu-1", 30)
    seen.now_s = 5.0
    seen.answered("cu-1", 2)
    seen.failed("cu-1", ServiceBusy("queue", "status 429"))
    assert seen.odd == [("busy-all", "cu-1")]


def test_institution_that_always_fails_is_told_while_others_are_answered() -> None:
    """Three failures without an answer; not if nobody is answered, which is an outage."""
    seen = Seen()
    error = ServiceUnavailable("queue", "status 500", 500)
    seen.failed("cu-2", error, 5)
    assert seen.odd == []
    seen.answered("cu-1")
    seen.failed("cu-2", error)
    seen.failed("cu-1", error, 5)
    assert seen.odd == [("500-one-institution", "cu-2")]


def test_checks_are_slow_only_beside_quick_answers() -> None:
    """If all requests of an institution are slow, its checks are no exception."""
    seen = Seen()
    seen.answered("cu-1")
    seen.answered("cu-2", 3, took_s=4.0)
    seen.patterns.check_took("cu-2", 4.0)
    seen.patterns.check_took("cu-1", 4.0)
    seen.patterns.check_took("cu-1", 0.1)
    seen.patterns.check_took("cu-1", 4.0)  # an accident, because another one was quick
    assert seen.odd == [("slow-one-institution", "cu-2"), ("slow-checks", "cu-1")]


def test_effect_that_was_turned_away_is_told_once_its_outcome_shows() -> None:
    """A 401 says nothing of whether it was carried out; stored details do."""
    seen = Seen()
    lapsed = TokenLapsed("enroll", "status 401")
    for state in (EffectState.ABSENT, EffectState.CONFIRMED, EffectState.UNRESOLVED):
        seen.patterns.turned_away("c:cu-1:v", EffectKind.ENROLL, lapsed)
        seen.patterns.established("cu-1", "c:cu-1:v", EffectKind.ENROLL, state)
        seen.patterns.established("cu-1", "c:cu-1:v", EffectKind.ENROLL, EffectState.CONFIRMED)
    assert seen.odd == [("401-before-acting", "cu-1"), ("401-after-acting", "cu-1")]


def test_usual_answers_are_counted_once_a_second() -> None:
    """Counting each would cost more than it says; the list of institutions is no request of a call."""
    seen = Seen()
    seen.answered("cu-1", 100)
    seen.patterns.note(INSTITUTIONS, "", None, 0.1)
    once = len(seen.names)
    seen.now_s = 1.0
    seen.answered("cu-1", 100)
    assert len(seen.names) == 2 * once


def test_earlier_answer_says_nothing_of_a_later_request() -> None:
    """Another worker found out what became of the 401; what was sent again then timed out, and was carried out."""
    seen = Seen()
    seen.patterns.turned_away("c:cu-1:v-1", EffectKind.ENROLL, TokenLapsed("enroll", "status 401"))
    seen.patterns.turned_away("c:cu-1:v-1", EffectKind.ENROLL, ServiceUnavailable("enroll", "no answer"))
    seen.patterns.established("cu-1", "c:cu-1:v-1", EffectKind.ENROLL, EffectState.CONFIRMED)
    assert seen.odd == []

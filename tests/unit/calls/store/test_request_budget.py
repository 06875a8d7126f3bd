"""What 503 answers to one process tell of the service's load, and how long the scripts let requests wait."""

from math import exp

import pytest

from callkeeper.calls.store.request_budget import AnswerCount, Permit
from tests.integration.calls.hand import Hand
from tests.request_budget_model import Script


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


class Budget:
    """The scripts, at times that are moved by hand. ``rate`` is what is set for the account."""

    def __init__(self, rate: float = 0.0) -> None:
        self.script, self.rate, self.ms = Script(), rate, 1_000_000

    def wait_ms(self, kind: Permit, member: str, *, requests: int = 1, random: float = 0.5) -> int:
        """Ask for permits. Return for how many ms to wait, 0 if the requests may be sent."""
        asked = {"permit_class": int(kind), "requests": requests, "member": member, "random": random}
        return int(self.script("permits", self.ms, "", self.rate, **asked))

    def waits_ms(self, kind: Permit, times: int) -> list[int]:
        """Let so many members ask, one after the other."""
        return [self.wait_ms(kind, f"{kind.name}{n:03}") for n in range(times)]

    def lower(self, sign: str, scope: str = "", *, answered_per_s: float = 0.0, acted_for: int = 1) -> dict[str, float]:
        """Report that the service gets too many requests. Return the rates by scope."""
        told = {"sign": sign, "scope": scope, "answered_per_s": answered_per_s, "acted_for": acted_for}
        self.script("lower_rate", self.ms, set_rate=0 if scope else self.rate, **told)
        return self.script.rates


@pytest.mark.parametrize(
    ("rate", "at_once"),
    [(0.5, 2), (2.0, 2), (2.5, 3), (18.0, 18), (18.1, 10), (36.0, 18), (450.0, 18), (1000.0, 40)],
)
def test_permits_at_one_moment_are_those_of_a_second_up_to_18(rate: float, at_once: int) -> None:
    """With a higher rate a window is shorter, but there are 25 in a second at most. An effect, which takes two, fits."""
    assert [wait_ms == 0 for wait_ms in Budget(rate).waits_ms(Permit.READ, at_once + 1)] == [True] * at_once + [False]


def test_budget_of_a_release_that_stored_less_is_forgotten() -> None:
    """Its fields are others, so nothing says that its fifth number was a rate, too."""
    budget = Budget()
    budget.script.stored[""] = " ".join(["1.0000"] * 16)
    assert budget.waits_ms(Permit.READ, 3) == [0, 0, 0]


@pytest.mark.parametrize(("late_ms", "is_free"), [(999, False), (1000, True)])
def test_member_that_does_not_come_back_holds_nothing_for_long(late_ms: int, is_free: bool) -> None:
    """The worker died whose effect waits first: a second after it should have asked again others go on."""
    budget = Budget(2.0)
    budget.waits_ms(Permit.READ, 2)
    budget.ms += budget.wait_ms(Permit.EFFECT, "dead", requests=2) + late_ms
    assert (budget.wait_ms(Permit.READ, "next") == 0) == is_free


CHECK, LISTING, READ = Permit.CHECK, Permit.LISTING, Permit.READ


@pytest.mark.parametrize(
    ("asks", "waits", "had_theirs", "goes_first"),
    [
        (CHECK, LISTING, [], True),
        (CHECK, LISTING, [LISTING], True),
        (CHECK, LISTING, [CHECK, LISTING], True),
        (CHECK, LISTING, [CHECK], False),
        (LISTING, CHECK, [], False),
        (LISTING, CHECK, [LISTING], False),
        (LISTING, CHECK, [CHECK, LISTING], False),
        (LISTING, CHECK, [CHECK], True),
        (LISTING, READ, [LISTING], False),
    ],
)
def test_class_that_had_no_share_goes_first_then_the_one_with_priority(
    asks: Permit, waits: Permit, had_theirs: list[Permit], goes_first: bool
) -> None:
    """A new member takes both permits of a window if it goes first, else it leaves one for the member that waits."""
    budget = Budget(2.0)
    for n, kind in enumerate([*had_theirs, Permit.EFFECT, Permit.EFFECT][:2]):
        assert budget.wait_ms(kind, f"before{n}") == 0
    assert budget.wait_ms(waits, "waits") == 1500
    budget.ms += 1300
    assert (budget.wait_ms(asks, "asks", requests=2) == 0) == goes_first
    assert (budget.wait_ms(asks, "asks") == 0) != goes_first


@pytest.mark.parametrize("random", [0.0, 0.5])
def test_read_does_not_overtake_an_effect_whatever_was_drawn(random: float) -> None:
    """It comes back a moment later, also if it is the first of its class, and there is room for it alone."""
    budget = Budget(2.0)
    budget.waits_ms(Permit.READ, 2)
    budget.wait_ms(Permit.READ, "first")
    budget.ms += budget.wait_ms(Permit.EFFECT, "effect")
    assert budget.wait_ms(Permit.READ, "first", random=random) > 0
    assert budget.wait_ms(Permit.EFFECT, "effect") == 0
    assert budget.wait_ms(Permit.READ, "first") == 0, "no effect waits any more"


def test_member_that_asks_again_waits_for_those_before_it() -> None:
    """The last of a hundred at ten requests per second: until the window is free, then 99 turns and an eighth."""
    budget = Budget(10.0)
    waits_ms = budget.waits_ms(Permit.READ, 110)
    assert waits_ms[10:20] == [1000 + 100 * n for n in range(1, 11)]
    assert budget.wait_ms(Permit.READ, "READ109") == 1000 + 9913


@pytest.mark.parametrize(("reads", "wait_ms"), [(2, 940 + 2000), (6, 940 + 7000)])
def test_member_behind_an_effect_comes_back_at_a_random_time(reads: int, wait_ms: int) -> None:
    """After those of its class that came before, which get one permit a second, and half of up to four turns more."""
    budget = Budget(10.0)
    assert not any(budget.waits_ms(Permit.LISTING, 10))
    assert all(budget.waits_ms(Permit.READ, reads))
    assert budget.wait_ms(Permit.EFFECT, "effect") == 1100
    budget.ms += 1000
    assert not any(budget.waits_ms(Permit.LISTING, 10))
    budget.ms += 60
    assert budget.wait_ms(Permit.READ, f"READ{reads - 1:03}") == wait_ms


def test_class_behind_an_effect_expects_a_little_more_than_it_had() -> None:
    """A read behind an effect waits as long as its class waited for a permit lately, less a quarter."""
    budget = Budget(10.0)
    assert not any(budget.waits_ms(Permit.READ, 5))
    budget.ms += 990
    assert not any(budget.waits_ms(Permit.LISTING, 5))
    assert budget.wait_ms(Permit.EFFECT, "effect") == 110
    budget.ms += 60
    assert [wait_ms == 0 for wait_ms in budget.waits_ms(Permit.LISTING, 4)] == [True] * 3 + [False]
    had_per_s = 5 * exp(-1.05 / 2) / 2
    assert budget.wait_ms(Permit.READ, "read") == pytest.approx(1000 / (1.3 * had_per_s), abs=1)


@pytest.mark.parametrize(("effects", "wait_ms"), [(1, 2400), (8, 4800), (16, 5000)])
def test_new_member_waits_no_longer_than_those_before_it_need(effects: int, wait_ms: int) -> None:
    """Two seconds at least, so that not all ask all the time; a fifth more here, so that they do not ask together.

    The last one waits for the tenth of the rate that reads get in any case.
    """
    budget = Budget(2.0)
    budget.waits_ms(Permit.LISTING, 2)
    assert all(budget.waits_ms(Permit.EFFECT, effects))
    budget.ms += 1300
    assert budget.wait_ms(Permit.READ, "read", random=0.9) == wait_ms


def test_nobody_waits_longer_than_half_a_minute() -> None:
    """However many wait, and however low the rate is."""
    assert max(Budget(0.5).waits_ms(Permit.READ, 50)) == 30_000


def test_each_class_is_owed_its_share_of_the_rate() -> None:
    """Three tenths are for effects, as many for checks, half as many for listings, a tenth for reads. Two at the most."""
    budget = Budget(4.0)
    assert [budget.wait_ms(kind, kind.name) for kind in Permit] == [0, 0, 0, 0]
    owed = []
    for _ in range(2):
        budget.ms += 1000
        budget.wait_ms(Permit.READ, "more", requests=9)
        owed.append([float(number) for number in budget.script.stored[""].split()[9:13]])
    assert owed == [[1.2, 1.2, 0.6, 0.4], [2, 2, 1.2, 0.8]]
    assert budget.wait_ms(Permit.EFFECT, "another") == 0
    assert float(budget.script.stored[""].split()[9]) == 1


def test_use_is_what_got_a_permit_lately() -> None:
    """The mean of two seconds; what has to wait does not count."""
    budget = Budget(10.0)
    budget.waits_ms(Permit.READ, 15)
    assert float(budget.script.stored[""].split()[1]) == 10 / 2


def test_429_lowers_the_rate_by_15_percent_once_a_second() -> None:
    """The first one begins it at the rate of answers. Most that follow at once are to requests that were in flight."""
    budget = Budget()
    rates = []
    for step_ms in (0, 999, 1, 999, 1):
        budget.ms += step_ms
        rates.append(budget.lower("busy", answered_per_s=20)[""])
    assert rates == pytest.approx([20, 20, 17, 17, 14.45])


@pytest.mark.parametrize(
    ("signs", "factor"),
    [(["busy"], 1.5), (["busy", "busy"], 1.03), (["strained"] * 5, 1.06)],
    ids=["first 429", "429", "503"],
)
@pytest.mark.parametrize("waits", [True, False])
def test_learned_rate_grows_in_each_second_in_which_work_waits(signs: list[str], factor: float, waits: bool) -> None:
    """By half until the second 429, then slowly. What nobody needs says nothing."""
    budget = Budget()
    for sign in signs:
        budget.ms += 1000
        assert not any(budget.waits_ms(Permit.CHECK, 5))
        rate = budget.lower(sign, answered_per_s=20)[""]
    if waits:
        while not budget.wait_ms(Permit.READ, "waits"):
            pass
    budget.ms += 1000
    budget.wait_ms(Permit.EFFECT, "another")
    assert budget.script.rate == pytest.approx(rate * factor if waits else rate, abs=0.001)


def test_learned_rate_is_four_at_the_least() -> None:
    """However many 429s there are: they may have other reasons than the number of requests."""
    budget = Budget()
    for _ in range(30):
        budget.lower("busy", answered_per_s=20)
        budget.ms += 1000
    assert budget.script.rate == 4


def test_429_right_after_a_503_is_heeded() -> None:
    """503 only began the counting of requests; 429 says that there is a limit."""
    budget = Budget()
    assert budget.lower("strained") == {"": 0}
    assert budget.lower("busy", answered_per_s=20) == {"": 20}


def test_503_lowers_a_rate_that_429_taught() -> None:
    """Just as another 429 would."""
    budget = Budget()
    budget.lower("busy", answered_per_s=20)
    budget.ms += 1000
    assert budget.lower("strained") == {"": pytest.approx(17)}


def test_503_lowers_the_rate_to_three_fifths_of_what_was_sent() -> None:
    """For four seconds after the first, requests are only counted. Effects, checks and listings need the rest."""
    budget = Budget()

    def load(seconds: int) -> float:
        for n in range(50 * seconds):
            budget.ms += 20
            budget.wait_ms(Permit.READ, f"{n}")
        return budget.lower("strained")[""]

    budget.lower("strained")
    assert [load(1) for _ in range(3)] == [0, 0, 0]
    sent_per_s = load(1) / 0.85
    assert sent_per_s == pytest.approx(50 * (1 - exp(-4 / 2)), rel=0.02)
    rates = [load(1) for _ in range(10)]
    assert [min(rates), rates[-1]] == pytest.approx([0.6 * sent_per_s] * 2, abs=0.001)


def test_503_counts_only_what_was_sent_lately() -> None:
    """A burst that ended before the second sign was not what the service could not bear."""
    budget = Budget()
    budget.lower("strained")
    budget.waits_ms(Permit.READ, 50)
    budget.ms += 4000
    assert budget.lower("strained") == {"": 10}


def test_429_lowers_the_account_s_rate_if_one_is_set_however_low() -> None:
    """Then it is known that there is a limit, and that it is the account's."""
    budget = Budget(0.95)
    budget.wait_ms(Permit.READ, "m")
    assert budget.lower("busy", "cu-1", acted_for=2) == {"": 0.95}


def test_429_for_one_and_503_for_another_institution_are_no_common_limit() -> None:
    """They have different reasons."""
    budget = Budget()
    budget.lower("busy", "cu-1", answered_per_s=20, acted_for=2)
    assert budget.lower("strained", "cu-2", acted_for=2) == {"cu-1": 20, "cu-2": 0}


@pytest.mark.parametrize(("calm", "left"), [(["cu-1"], {"cu-2", "cu-3"}), ([], {"cu-3"})])
def test_what_503_taught_of_an_institution_is_forgotten_with_its_outage(calm: list[str], left: set[str]) -> None:
    """Or of all. What 429 taught stays."""
    budget = Budget()
    budget.lower("busy", "cu-3", answered_per_s=20, acted_for=9)
    for scope in ("cu-1", "cu-2"):
        budget.lower("strained", scope, acted_for=9)
    budget.script("forget_load", budget.ms, *calm)
    assert budget.script.rates.keys() == left


@pytest.mark.parametrize(("calm_ms", "left"), [(30_000, {""}), (30_001, set())])
def test_what_503_taught_is_forgotten_after_half_a_minute(calm_ms: int, left: set[str]) -> None:
    """Then no request needs a permit."""
    budget = Budget()
    budget.lower("strained")
    budget.ms += calm_ms
    budget.wait_ms(Permit.READ, "m")
    assert budget.script.rates.keys() == left

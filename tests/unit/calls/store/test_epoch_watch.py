"""What a process learns from the answers to its claims about Redis itself."""

from datetime import UTC, datetime, timedelta

from callkeeper.calls.claimed_item import ClaimAnswer, Epoch, Jump, instant
from callkeeper.calls.store.epoch_watch import EpochWatch

START_MS = round(datetime(2026, 11, 22, 10, 38, tzinfo=UTC).timestamp() * 1000)


class Watch:
    """Claims at instants of this process's own clock, in seconds."""

    def __init__(self) -> None:
        self.epochs = EpochWatch()

    def claim(
        self,
        at_s: float,
        *,
        ahead_s: float = 0.0,
        epoch: str = "one",
        since_s: float = 0.0,
        lost: int = -1,
        **told: bool,
    ) -> Epoch:
        """Claim from a Redis whose clock is ``ahead_s`` ahead, and that was first claimed from at ``since_s``."""
        now = START_MS + round((at_s + ahead_s) * 1000)
        since = START_MS + round(since_s * 1000)
        answer = ClaimAnswer(now, epoch.encode(), since, [], [], 0, 0, lost, 0, [], b"", 0, 0, [])
        return self.epochs.epoch_of(answer, at_s, at_s, knew_other_data=told.get("knew_other_data", False))


def at(seconds: float) -> datetime:
    """Return an instant after the start."""
    return instant(START_MS) + timedelta(seconds=seconds)


def test_before_the_first_claim_nothing_is_known() -> None:
    """The script then takes any Redis for the right one."""
    assert EpochWatch().last(5.0) == ("", 0)


def test_clock_of_the_last_epoch_goes_on() -> None:
    """What Redis's clock shows between two claims follows from our own."""
    watch = Watch()
    watch.claim(10.0)
    assert watch.epochs.last(12.5) == ("one", START_MS + 12_500)


def test_epoch_that_was_there_before_us_was_not_seen_to_begin() -> None:
    """It is as old as Redis says."""
    epoch = Watch().claim(100.0, since_s=40.0, lost=1500)
    assert epoch == Epoch("one", at(40.0), timedelta(seconds=1.5), first_claimed_at=at(40.0))


def test_another_epoch_begins_when_we_see_it() -> None:
    """Another worker may have claimed from it first: effects wait by our own clock, too."""
    watch = Watch()
    watch.claim(10.0)
    second = watch.claim(20.0, epoch="two", since_s=15.0)
    assert (second.since, second.first_claimed_at, second.was_seen_to_begin) == (at(20.0), at(15.0), True)
    assert watch.claim(30.0, epoch="two", since_s=15.0).since == at(20.0)


def test_clock_that_jumps_ahead_does_not_shorten_the_wait_after_a_change() -> None:
    """One second has passed, whatever Redis's clock shows."""
    watch = Watch()
    watch.claim(10.0)
    watch.claim(20.0, epoch="two", since_s=20.0)
    later = watch.claim(21.0, epoch="two", since_s=20.0, ahead_s=3600.0)
    assert at(21.0 + 3600.0) - later.since == timedelta(seconds=1)


def test_other_data_in_the_same_epoch_counts_as_a_change() -> None:
    """A dump may have been loaded into a running Redis."""
    watch = Watch()
    assert not watch.claim(10.0).was_seen_to_begin
    assert watch.claim(20.0, knew_other_data=True).was_seen_to_begin


def test_jump_ahead_is_found_and_forgotten_when_the_clock_is_set_back() -> None:
    """Then it cannot be told any more which records are older. A few seconds are no jump."""
    watch = Watch()
    watch.claim(10.0)
    watch.claim(11.0, ahead_s=4.0)
    found = [watch.epochs.jumps.found]
    for at_s, ahead_s in ((12.0, 64.0), (13.0, 0.0)):
        watch.claim(at_s, ahead_s=ahead_s)
        found.append(watch.epochs.jumps.found)
    assert found == [(), (Jump(at(15.0), timedelta(seconds=60)),), ()]

"""Sees, in the answers to the claims of one process, when it is another Redis that answers, or a clock jumps. No I/O."""

from datetime import datetime, timedelta

from callkeeper.calls.claimed_item import CLOCK_TOLERANCE, ClaimAnswer, Epoch, Jump, instant


class Jumps:
    """Detects when Redis's clock jumps ahead of this process's clock."""

    def __init__(self) -> None:
        self._last: tuple[datetime, float] | None = None
        self.found: tuple[Jump, ...] = ()
        """``callkeeper.calls.redis_restart.catch_up`` shifts records that were saved before a jump."""

    def compare(self, now: datetime, asked_at_s: float, answered_at_s: float) -> None:
        """Compare the time in an answer of Redis with this process's own, in seconds."""
        if self._last is not None:
            last, last_s = self._last
            at_most = last + timedelta(seconds=answered_at_s - last_s)
            if now - at_most > CLOCK_TOLERANCE:
                self.found = (*self.found, Jump(last, now - at_most))
            elif last + timedelta(seconds=asked_at_s - last_s) - now > CLOCK_TOLERANCE:
                self.found = ()  # it can no longer be told which records are older
        self._last = now, answered_at_s


class EpochWatch:
    """Knows from which Redis this process claimed last, and when that changed."""

    def __init__(self) -> None:
        self.jumps = Jumps()
        self._last: tuple[str, int, float] | None = None  # epoch, its time in ms, our time just before
        self._changed_at_s: float | None = None

    def last(self, at_s: float) -> tuple[str, int]:
        """Return the last epoch and what its clock shows now, in ms; empty and 0 before the first claim."""
        epoch, ms, seen_at_s = self._last or ("", 0, at_s)
        return epoch, ms + int((at_s - seen_at_s) * 1000)

    def epoch_of(self, answer: ClaimAnswer, asked_at_s: float, answered_at_s: float, *, knew_other_data: bool) -> Epoch:
        """Return the epoch of an answer.

        ``knew_other_data``: this process has seen other data in Redis before.
        """
        now, epoch_id = instant(answer.now), answer.epoch.decode()
        if knew_other_data or (self._last is not None and self._last[0] != epoch_id):
            self._changed_at_s = asked_at_s
        self._last = (epoch_id, answer.now, asked_at_s)
        self.jumps.compare(now, asked_at_s, answered_at_s)
        since = first_claimed_at = instant(answer.since)
        if self._changed_at_s is not None:
            # Redis's clock may jump ahead, so effects also wait for the full time by our own clock.
            since = max(since, now - timedelta(seconds=max(0.0, asked_at_s - self._changed_at_s)))
        return Epoch(
            epoch_id,
            since,
            None if answer.lost < 0 else timedelta(milliseconds=answer.lost),
            was_seen_to_begin=self._changed_at_s is not None,
            is_replaced=bool(answer.knew_other_data),
            first_claimed_at=first_claimed_at,
        )

"""Recognises patterns in many answers: limits, institutions that always fail, slow answers, effects turned away.

One answer says little: a 429 can be a limit or an accident, a 500 an outage. So this process keeps a few counts of each
institution. Nothing is decided on them; they are for the survey (`callkeeper.calls.assumptions`).
"""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from callkeeper.calls.effect_ledger import EffectKind, EffectState
from callkeeper.service import (
    AccessRefused,
    LoginRefused,
    OutcomeUnknown,
    ServiceBusy,
    ServiceUnavailable,
    TokenLapsed,
    TurnedAway,
)
from callkeeper.service.endpoints import TOKEN, AuthMode, Endpoint
from callkeeper.service.open_questions import USUAL, See, unseen

ALWAYS: Final = 3
"""After this many failures without any answer, an institution always fails, while others are answered."""

SLOW_S: Final = 3.0
"""An answer that takes longer is slow: the deadline is twice as long."""

_LIMITS: Final = ((9, "limit-5"), (40, "limit-15"))
_MOST: Final = 1000


@dataclass(slots=True)
class AnswerPatterns:
    """Notes every answer of one process. ``clock`` is its monotonic clock, in seconds."""

    see: See = unseen
    clock: Callable[[], float] = lambda: 0.0
    _answered: Counter[str] = field(default_factory=Counter)
    _quick: Counter[str] = field(default_factory=Counter)
    _quick_checks: Counter[str] = field(default_factory=Counter)
    _failed: Counter[tuple[str, str]] = field(default_factory=Counter)
    _recent: deque[float] = field(default_factory=deque)
    _most_in_1_s: int = 0
    _turned_away: dict[tuple[str, EffectKind], str] = field(default_factory=dict)
    _usual_at_s: float | None = None

    def note(self, endpoint: Endpoint, institution_key: str, error: BaseException | None, seconds: float) -> None:
        """Note a finished request."""
        if endpoint is TOKEN and isinstance(error, LoginRefused):
            self._login_refused(error)
        if endpoint.mode is not AuthMode.SERVICE_ACCOUNT:
            return
        if error is None:
            self._was_answered(institution_key, seconds)
        elif isinstance(error, ServiceBusy | TurnedAway):
            self._busy(institution_key, has_time=error.retry_after_s is not None)
        elif isinstance(error, ServiceUnavailable) and error.status in (500, 503):
            if self._always_fails(institution_key, str(error.status)):
                self._tell("failing-institution", f"{error.status}-one-institution", institution_key)
        elif isinstance(error, AccessRefused) and error.arrived and self._always_fails(institution_key, "401"):
            self._tell("refused-401-scope", "401-one-institution", institution_key)

    def _was_answered(self, institution_key: str, seconds: float) -> None:
        now_s = self.clock()
        self._recent.append(now_s)
        while self._recent[0] <= now_s - 1.0:
            self._recent.popleft()
        self._most_in_1_s = max(self._most_in_1_s, len(self._recent))
        self._answered[institution_key] += 1
        if seconds < SLOW_S:
            self._quick[institution_key] += 1
        elif self._answered[institution_key] >= ALWAYS and not self._quick[institution_key] and self._quick.total():
            self._tell("answer-time", "slow-one-institution", institution_key, f"{seconds:.0f} s")
        if self._usual_at_s is None or now_s - self._usual_at_s >= 1.0:  # each of them would cost as much as it says
            self._usual_at_s = now_s
            if not self._failed:
                for assumption in ("busy-is-of-institution", "failing-institution", "refused-401-scope"):
                    self._tell(assumption, USUAL)
            if self._quick[institution_key]:
                self._tell("answer-time", USUAL, "", f"{seconds:.1f} s")

    def check_took(self, institution_key: str, took_s: float) -> None:
        """Note how long a check took. Checks are slow if none is quick, and other requests of the institution are."""
        if took_s < SLOW_S:
            self._quick_checks[institution_key] += 1
        elif self._quick[institution_key] and not self._quick_checks[institution_key]:
            self._tell("answer-time", "slow-checks", institution_key, f"{took_s:.0f} s")

    def _busy(self, institution_key: str, *, has_time: bool) -> None:
        is_its_own = self._always_fails(institution_key, "429")
        ending = "-retry-after" if has_time else ""
        if is_its_own:
            self._tell("busy-is-of-institution", f"busy-one{ending}", institution_key)
        elif not self._answered[institution_key]:
            return  # too few to tell
        elif has_time:
            self._tell("busy-is-of-institution", "busy-all-retry-after", institution_key)
        else:
            count = len([at_s for at_s in self._recent if at_s > self.clock() - 1.0])
            # A limit turns requests away only when about as many were answered as ever. Other requests count for it, too.
            name = next((name for most, name in _LIMITS if self._most_in_1_s <= most), "limit-100")
            answer = "busy-all" if count < self._most_in_1_s / 2 else name
            self._tell("busy-is-of-institution", answer, institution_key, f"429 after {count} requests in a second")

    def _always_fails(self, institution_key: str, how: str) -> bool:
        self._failed[institution_key, how] += 1
        is_alone = not self._answered[institution_key] and self._answered.total() > 0
        return is_alone and self._failed[institution_key, how] >= ALWAYS

    def _login_refused(self, error: LoginRefused) -> None:
        status = next((status for status in (400, 401, 500) if str(status) in error.reason), None)
        answer = USUAL if status is None else f"login-refused-{status}"
        self._tell("login-refusal-form", answer, "", f"status {status or 200}")

    def turned_away(self, member: str, kind: EffectKind, error: BaseException) -> None:
        """Note that an effect may not have been carried out, until stored details show it."""
        self._turned_away.pop((member, kind), None)  # an earlier answer says nothing of this request
        match error:
            case TokenLapsed():
                status = "401"
            case TurnedAway():
                status = "429"
            case OutcomeUnknown() if "503" in error.reason:
                status = "503"
            case _:
                return
        if len(self._turned_away) >= _MOST:  # another worker has found out what became of the oldest
            self._turned_away.pop(next(iter(self._turned_away)))
        self._turned_away[member, kind] = status

    def established(self, institution_key: str, member: str, kind: EffectKind, state: EffectState) -> None:
        """Note what stored details showed of an effect that was turned away."""
        status = self._turned_away.pop((member, kind), None)
        if status is None or state not in (EffectState.CONFIRMED, EffectState.ABSENT):
            return
        is_done = state is EffectState.CONFIRMED
        match status:
            case "401":
                answer = "401-after-acting" if is_done else "401-before-acting"
                self._tell("refused-401-before-acting", answer, institution_key, kind)
            case "429":
                self._tell("busy-before-acting", "429-after-acting" if is_done else USUAL, institution_key, kind)
            case _:
                self._tell("failed-503-after-acting", USUAL if is_done else "503-before-acting", institution_key, kind)

    def _tell(self, assumption: str, answer: str, institution_key: str = "", shape: str = "") -> None:
        self.see(assumption, answer, institution_key, shape)

"""A token store in memory for a single process: tests, the command line, first trials."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from callkeeper.service.endpoints import institution_of, operation_of
from callkeeper.service.tokens import (
    ALIVE_S,
    FIRST_WAIT_S,
    OVERTAKE_S,
    SUSPICION_S,
    TOKEN_TTL_S,
    Login,
    LoginGranted,
    LoginPending,
    LoginShut,
    LoginTurn,
    Refusal,
    Shut,
    SsoToken,
    probe_wait_s,
)


@dataclass(slots=True)
class _Gate:
    nonce: str | None = None
    lease_until: float = 0.0
    failures: int = 0
    shut_until: float = 0.0
    reason: Shut = Shut.INTERVAL
    refused_until: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class _Refused:
    generation: str
    at: float
    until: float | None = None


class MemoryTokenStore:
    """Keeps the token in this process. Any number of clients in one event loop may share it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._token: SsoToken | None = None
        self._issued_at = 0.0
        self._expires_at = 0.0
        self._gate = _Gate()
        self._refused: dict[str, _Refused] = {}

    async def load(self) -> SsoToken | None:
        """Return the token unless it has expired."""
        now = self._clock()
        if self._token is None or now >= self._expires_at:
            return None
        barred = {
            scope: max(0.0, known.until - now) for scope, known in self._refused.items() if known.until is not None
        }
        return replace(self._token, age_s=now - self._issued_at, barred=barred)

    async def slide(self, generation: str, *, min_interval_s: float) -> None:
        """Extend the expiry. The first time, mark the token as proven and open the gate."""
        token = await self.load()
        if token is None or token.generation != generation:
            return
        self._expires_at = self._clock() + TOKEN_TTL_S
        self._token = replace(token, is_proven=True)
        if token.is_proven:
            return
        self._gate.failures = 0
        self._gate.shut_until = self._issued_at + min_interval_s
        self._gate.reason = Shut.INTERVAL

    async def refuse(self, generation: str, scope: str) -> Refusal:
        """Record a 401. Bar the scope if the previous token was refused for it as well."""
        token, now = await self.load(), self._clock()
        if token is None or token.generation != generation:
            return Refusal(is_current=False)
        known = self._refused.get(scope)
        if known is not None and known.until is not None:
            if now - (self._expires_at - TOKEN_TTL_S) >= ALIVE_S:
                return Refusal(is_current=True, is_proven=token.is_proven)
            known.until = known.until if now < known.until else now + probe_wait_s(now - known.at)
            return Refusal(is_current=True, is_proven=token.is_proven, barred_s=known.until - now)
        refused_before = known is not None and known.generation != generation and now - known.at < SUSPICION_S
        if refused_before or self._is_refused(institution_of(scope)):
            self._refused[scope] = _Refused(generation, now, now + FIRST_WAIT_S)
            return Refusal(is_current=True, is_proven=token.is_proven, barred_s=FIRST_WAIT_S, is_news=True)
        if known is None or known.generation != generation:
            self._refused[scope] = _Refused(generation, now)
        return Refusal(is_current=True, is_proven=token.is_proven)

    def _is_refused(self, institution_key: str) -> bool:
        """Tell whether an institution may not read, or another of its operations was barred a moment ago."""
        return bool(institution_key) and any(
            operation_of(scope) in ("queue", "details") or self._clock() - known.at < SUSPICION_S
            for scope, known in self._refused.items()
            if institution_of(scope) == institution_key and known.until is not None
        )

    async def clear(self, scope: str) -> bool:
        """Forget a refusal, and let the institution's other barred scopes be tried."""
        known = self._refused.pop(scope, None)
        if known is None or known.until is None:
            return False
        for other, refused in self._refused.items():
            if institution_of(other) == institution_of(scope) and refused.until is not None:
                refused.until = self._clock()
        return True

    async def probe(self, scope: str) -> float | None:
        """Let one request at a time try a barred scope."""
        known, now = self._refused.get(scope), self._clock()
        if known is None or known.until is None:
            return None
        if now < known.until:
            return known.until - now
        known.until = now + probe_wait_s(now - known.at)
        return 0.0

    async def claim_login(self, nonce: str, *, instead_of: str | None, lease_s: float, account: str = "") -> LoginTurn:
        """Return a usable token, the right to log in, or why there is neither."""
        token = await self.load()
        if token is not None and token.generation != instead_of:
            return token
        now, gate = self._clock(), self._gate
        if gate.nonce == nonce:
            return LoginGranted(gate.failures)
        if gate.nonce is not None and now < gate.lease_until:
            return LoginPending()
        if now < gate.refused_until.get(account, 0.0):
            return LoginShut(Shut.REFUSED, gate.refused_until[account] - now)
        if now < gate.shut_until:
            return LoginShut(gate.reason, gate.shut_until - now)
        lease_s = min(lease_s, OVERTAKE_S) if gate.failures else lease_s
        gate.nonce, gate.lease_until, gate.failures = nonce, now + lease_s, gate.failures + 1
        return LoginGranted(gate.failures)

    async def save_login(self, nonce: str, login: Login, *, pause_s: float) -> SsoToken | None:
        """Store the token of the process that may log in."""
        if self._token is not None and self._token.generation == nonce:
            return await self.load()
        if self._gate.nonce != nonce and await self.load() is not None:
            return None
        now = self._clock()
        self._token = SsoToken(nonce, login.value, login.institution_keys, age_s=0.0)
        self._issued_at, self._expires_at = now, now + TOKEN_TTL_S
        self._end_turn(Shut.FAULT, pause_s)
        return await self.load()

    async def fail_login(self, nonce: str, reason: Shut, *, pause_s: float, account: str = "") -> None:
        """Close the gate for the process that may log in."""
        if self._gate.nonce != nonce:
            return
        if reason is Shut.REFUSED:
            self._gate.refused_until[account] = self._clock() + pause_s
            pause_s = 0.0
        self._end_turn(reason, pause_s)

    def _end_turn(self, reason: Shut, pause_s: float) -> None:
        self._gate.nonce = None
        self._gate.reason = reason
        self._gate.shut_until = self._clock() + pause_s

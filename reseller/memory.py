"""A token store for one process: tests, the command line, a first try."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from reseller.tokens import (
    TOKEN_TTL_S,
    Login,
    LoginGranted,
    LoginPending,
    LoginShut,
    LoginTurn,
    Shut,
    SsoToken,
)


@dataclass(slots=True)
class _Gate:
    nonce: str | None = None
    lease_until: float = 0.0
    failures: int = 0
    shut_until: float = 0.0
    reason: Shut = Shut.INTERVAL


class MemoryTokenStore:
    """Keep the token in this process. Shared by any number of clients in one event loop.

    Args:
        clock: Seconds, never going back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._token: SsoToken | None = None
        self._issued_at = 0.0
        self._expires_at = 0.0
        self._gate = _Gate()

    async def load(self) -> SsoToken | None:
        """Return the token unless its time is over."""
        now = self._clock()
        if self._token is None or now >= self._expires_at:
            return None
        return replace(self._token, age_s=now - self._issued_at)

    async def slide(self, generation: str, *, min_interval_s: float) -> None:
        """Move the expiry; on the first time, prove the token and open the gate."""
        token = await self.load()
        if token is None or token.generation != generation:
            return
        self._expires_at = self._clock() + TOKEN_TTL_S
        self._token = replace(token, is_proven=True, is_lapsed=False)
        if token.is_proven:
            return
        self._gate.failures = 0
        self._gate.shut_until = self._issued_at + min_interval_s
        self._gate.reason = Shut.INTERVAL

    async def lapse(self, generation: str) -> bool:
        """Mark a proven token as lapsed; report an unproven one."""
        token = await self.load()
        if token is None or token.generation != generation:
            return False
        if token.is_proven:
            self._token = replace(token, is_lapsed=True)
        return not token.is_proven

    async def claim_login(self, nonce: str, *, instead_of: str | None, lease_s: float) -> LoginTurn:
        """Return a usable token, the turn, or why there is neither."""
        token = await self.load()
        if token is not None and not token.is_lapsed and token.generation != instead_of:
            return token
        now, gate = self._clock(), self._gate
        if gate.nonce == nonce:
            return LoginGranted(gate.failures)
        if gate.nonce is not None and now < gate.lease_until:
            return LoginPending()
        if now < gate.shut_until:
            return LoginShut(gate.reason, gate.shut_until - now)
        gate.nonce, gate.lease_until, gate.failures = nonce, now + lease_s, gate.failures + 1
        return LoginGranted(gate.failures)

    async def save_login(self, nonce: str, login: Login, *, pause_s: float) -> SsoToken | None:
        """Keep the token of the turn's holder."""
        if self._token is not None and self._token.generation == nonce:
            return await self.load()
        if self._gate.nonce != nonce:
            return None
        now = self._clock()
        self._token = SsoToken(nonce, login.value, login.institution_keys, age_s=0.0)
        self._issued_at, self._expires_at = now, now + TOKEN_TTL_S
        self._end_turn(Shut.FAULT, pause_s)
        return self._token

    async def fail_login(self, nonce: str, reason: Shut, *, pause_s: float) -> None:
        """Shut the gate on behalf of the turn's holder."""
        if self._gate.nonce == nonce:
            self._end_turn(reason, pause_s)

    def _end_turn(self, reason: Shut, pause_s: float) -> None:
        self._gate.nonce = None
        self._gate.reason = reason
        self._gate.shut_until = self._clock() + pause_s

"""The login that all requests share: which token to use, what to do after a 401, and when to log in.

There is one login per lapse, whatever the number of requests and processes. Within a process a lock ensures it, between
processes the token store. A repetition after a 401 belongs to the same exchange and its deadline.

A 401 may also mean that the service refuses one institution, or one operation of it: a *scope*. The first 401 of a
scope leads to a login, and other scopes then use the new token. A scope that is refused with the new token as well is
*barred*: no request of it is sent for some seconds, then one at a time is tried, and it causes no more logins.

A service may tell a lapse with ``success: false`` instead (`Session.lapsed`).
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import assert_never

from structlog.typing import FilteringBoundLogger

from callkeeper.service.config import LoginPolicy
from callkeeper.service.endpoints import QUEUE, TOKEN, institution_of, operation_of
from callkeeper.service.errors import (
    AccessRefused,
    LoginRefused,
    ResellerError,
    ServiceBusy,
    ServiceUnavailable,
    TokenFault,
)
from callkeeper.service.tokens import Login, LoginGranted, LoginPending, LoginShut, Refusal, Shut, SsoToken, TokenStore

SLIDE_WHILE_BARRED_S = 1.0
"""How often a success is recorded while a scope is barred, in seconds."""

LAPSE_TOLD_AFTER_S = 60.0
"""A token younger than this has not lapsed, whatever is refused: so one fault causes one login a minute at the most."""

LEASE_MARGIN_S = 2.0
"""How much longer than its deadline a login's lease lasts, in seconds."""


class Session:
    """Provides the token, and tracks whether it is accepted.

    Assumed (`login-keeps-earlier`): a new login leaves the older token valid. If it does not, a 401 of the older one
    leads to the newer one, without a login.

    ``deadline_s`` is that of one login, ``account`` identifies these credentials without revealing them.
    """

    def __init__(
        self,
        store: TokenStore,
        log_in: Callable[[], Awaitable[Login]],
        policy: LoginPolicy,
        *,
        deadline_s: float,
        account: str,
        clock: Callable[[], float],
        log: FilteringBoundLogger,
    ) -> None:
        self._account = account
        self._store = store
        self._log_in = log_in
        self._policy = policy
        self._lease_s = deadline_s + LEASE_MARGIN_S
        self._clock = clock
        self._log = log
        self._lock = asyncio.Lock()
        self._loading: asyncio.Future[SsoToken | None] | None = None
        self._cached: SsoToken | None = None
        self._cached_at = 0.0
        self._slid: str | None = None
        self._slid_at = 0.0
        self._suspects: dict[str, str] = {}  # scope -> generation of the token that was refused for it
        self._barred: dict[str, float] = {}  # scope -> time until which it is not tried
        self._worked: str | None = None  # generation of the token that this process saw succeed
        self._refusing: set[str] = set()  # operations refused since then

    async def current(self) -> SsoToken:
        """Return the token to use, logging in if there is none.

        Raises:
            LoginRefused: The credentials were refused, now or recently.
            TokenFault: The last login's token was never accepted.
            ServiceUnavailable: The login got no answer, now or recently.
        """
        if (cached := self._fresh()) is not None:
            return cached
        token = await self._load()
        if token is None:
            return await self._obtain(instead_of=None)
        return self._keep(token)

    async def has_token(self) -> bool:
        """Tell whether there is a token."""
        return self._fresh() is not None or await self._load() is not None

    async def _load(self) -> SsoToken | None:
        """Read the store once for all concurrent callers. When the cached token gets old, there may be hundreds."""
        if self._loading is None or self._loading.done():
            self._loading = asyncio.ensure_future(self._store.load())
        return await asyncio.shield(self._loading)

    async def renew(self, *, max_age_s: float) -> None:
        """Log in again if there is no token, if this process saw it refused, or if it is older than ``max_age_s``.

        Raises as `current`.
        """
        token = await self._store.load()
        if token is None:
            await self._obtain(instead_of=None)
        elif token.generation in self._suspects.values() or token.age_s >= max_age_s:
            await self._obtain(instead_of=token.generation)
        else:
            self._keep(token)

    async def accepted(self, token: SsoToken, scope: str, *, succeeded: bool) -> None:
        """Record an accepted request. If it succeeded, the token is proven and its expiry extended (see the policy)."""
        try:
            if scope in self._suspects or scope in self._barred:
                await self._cleared(scope)
            if succeeded:
                await self._slide(token)
        except Exception as error:  # noqa: BLE001  (bookkeeping must not fail an answered request)
            self._slid = None
            self._log.warning("token_not_slid", error=type(error).__name__)

    async def _slide(self, token: SsoToken) -> None:
        # While scopes are barred, it must be known that the token works: only then a login would not help them.
        every_s = SLIDE_WHILE_BARRED_S if self._barred else self._policy.slide_every_s
        now = self._clock()
        if self._slid == token.generation and now - self._slid_at < every_s:
            return
        self._slid, self._slid_at = token.generation, now
        await self._store.slide(token.generation, min_interval_s=self._policy.min_interval_s)

    async def _cleared(self, scope: str) -> None:
        if await self._store.clear(scope):
            self._log.info("access_restored", institution=institution_of(scope), operation=operation_of(scope))
        self._suspects.pop(scope, None)
        self._barred.pop(scope, None)
        for other in self._barred:
            if institution_of(other) == institution_of(scope):
                self._barred[other] = self._clock()

    async def refused(self, token: SsoToken, scope: str) -> Refusal:
        """Record a 401, and return what it means."""
        refusal = await self._store.refuse(token.generation, scope)
        if refusal.barred_s is None:
            if refusal.is_current and not refusal.is_proven:
                self._log.error("token_fault")
            self._suspects[scope] = token.generation
            return refusal
        self._suspects.pop(scope, None)
        self._barred[scope] = self._clock() + refusal.barred_s
        if refusal.is_news:
            self._log.error("access_refused", institution=institution_of(scope), operation=operation_of(scope))
        return refusal

    def lapsed(self, token: SsoToken, scope: str, *, succeeded: bool) -> bool:
        """Record whether an answer succeeded; tell whether a refusal is a lapse, which is then handled as a 401.

        It is one if the queue and another operation have been refused since the last success of any. The token must have
        worked before, so a refusal that a login does not end leads to one login. Spec: What the service does 4 ("branch on
        the success boolean"). Assumed (`lapse-with-success-false`): the Spec shows a lapse as 401 only.
        """
        if succeeded:
            self._worked = token.generation
            self._refusing.clear()
            return False
        self._refusing.add(operation_of(scope))
        is_all = QUEUE.name in self._refusing and len(self._refusing) > 1
        has_worked = token.is_proven or self._worked == token.generation
        return is_all and has_worked and token.age_s >= LAPSE_TOLD_AFTER_S

    def barred_s(self, scope: str) -> float | None:
        """Return for how many seconds a scope is not tried, as far as this process knows; None if it is not barred."""
        until = self._barred.get(scope)
        return None if until is None else max(0.0, until - self._clock())

    async def enter(self, endpoint: str, scope: str) -> None:
        """Let a request of a scope pass, unless the scope is barred.

        Raises:
            AccessRefused: It is not tried now, or another request is trying it.
        """
        wait_s = self.barred_s(scope)
        if wait_s == 0.0:
            wait_s = await self._store.probe(scope)
            if wait_s is None:
                self._barred.pop(scope, None)
        if wait_s:
            self._barred[scope] = self._clock() + wait_s
            raise AccessRefused(endpoint, wait_s, arrived=False)

    async def token_for(self, scope: str) -> SsoToken:
        """Return the token for a request of a scope: not the one that the scope was just refused with.

        Raises as `current`.
        """
        token = await self.current()
        is_suspect = self._suspects.get(scope) == token.generation
        return await self._obtain(instead_of=token.generation) if is_suspect else token

    async def record_answer(
        self,
        token: SsoToken,
        scope: str,
        status: int,
        *,
        succeeded: bool,
        may_repeat: bool = False,
        is_repeat: bool = False,
    ) -> SsoToken | None:
        """Record the status of a request with a token.

        Args:
            token: The token that was sent.
            scope: The operation and the institution of the request.
            status: Of the answer; 401 for a lapse that it tells otherwise.
            succeeded: Whether it has a good status and no ``success: false``.
            may_repeat: Whether a 401 may be followed by the same request with another token.
            is_repeat: Whether this was such a request.

        Returns:
            The token to repeat the request with; None if the answer stands.

        Raises:
            TokenFault: The repetition was refused too, with a token that was never accepted; else as `current`.

        Spec: Authentication.
        """
        if status == 401:
            refusal = await self.refused(token, scope)
            if refusal.barred_s is None and may_repeat:
                return await self._obtain(instead_of=token.generation)
            if refusal.is_current and not refusal.is_proven and (may_repeat or is_repeat):
                raise TokenFault(TOKEN.name, "a token just issued was refused")
        # Other refusals also show that access is granted. Otherwise a refused page size would keep a queue barred for
        # ever.
        elif status != 429 and status < 500:
            await self.accepted(token, scope, succeeded=succeeded)
        return None

    async def _obtain(self, *, instead_of: str | None) -> SsoToken:
        async with self._lock:
            if (cached := self._fresh()) is not None and cached.generation != instead_of:
                return cached
            return await self._take_turns(instead_of=instead_of)

    async def _take_turns(self, *, instead_of: str | None) -> SsoToken:
        """Wait for a token from another process, or for the right to log in."""
        nonce = secrets.token_hex(16)
        while True:
            turn = await self._store.claim_login(
                nonce, instead_of=instead_of, lease_s=self._lease_s, account=self._account
            )
            match turn:
                case SsoToken():
                    return self._keep(turn)
                case LoginGranted(failures):
                    token = await self._take_turn(nonce, failures)
                    if token is not None:
                        return self._keep(token)
                case LoginPending() | LoginShut(Shut.INTERVAL):
                    await asyncio.sleep(self._policy.poll_s)
                case LoginShut(reason, wait_s):
                    raise _shut(reason, wait_s)
                case _:
                    assert_never(turn)

    async def _take_turn(self, nonce: str, failures: int) -> SsoToken | None:
        began_s = self._clock()
        try:
            login = await self._log_in()
        except asyncio.CancelledError:
            await self._fail_turn(nonce, Shut.OUTAGE, failures, began_s)
            raise
        except ResellerError as error:
            self._log.error(
                "login_failed", error=type(error).__name__, reason=error.reason, failures=failures, said=error.plain
            )
            reason = Shut.REFUSED if isinstance(error, LoginRefused) else Shut.OUTAGE
            asked_s = (error.retry_after_s or 0.0) if isinstance(error, ServiceBusy) else 0.0
            await self._fail_turn(nonce, reason, failures, began_s, at_least_s=asked_s)
            raise
        self._log.info("login_made", institutions=len(login.institution_keys))
        return await self._store.save_login(nonce, login, pause_s=_pause_s(self._policy, Shut.FAULT, failures))

    async def _fail_turn(
        self, nonce: str, reason: Shut, failures: int, began_s: float, at_least_s: float = 0.0
    ) -> None:
        pause_s = _pause_s(self._policy, reason, failures)
        if reason is Shut.OUTAGE:
            pause_s -= self._clock() - began_s  # the time that the login took counts as pause
        await self._store.fail_login(nonce, reason, pause_s=max(at_least_s, pause_s), account=self._account)

    def _fresh(self) -> SsoToken | None:
        is_fresh = self._clock() - self._cached_at < self._policy.cache_s
        return self._cached if is_fresh else None

    def _keep(self, token: SsoToken) -> SsoToken:
        now = self._clock()
        self._cached, self._cached_at = token, now
        self._barred.clear()
        self._barred.update((scope, now + wait_s) for scope, wait_s in token.barred.items())
        return token


def _pause_s(policy: LoginPolicy, reason: Shut, failures: int) -> float:
    first_s = {
        Shut.REFUSED: policy.refused_pause_s,
        Shut.FAULT: policy.fault_pause_s,
        Shut.OUTAGE: policy.outage_pause_s,
    }[reason]
    # Only refused credentials are retried less and less often. Other causes end by themselves, and that must be
    # noticed.
    return min(policy.max_pause_s, first_s * 2.0 ** min(failures - 1, 30)) if reason is Shut.REFUSED else first_s


def _shut(reason: Shut, wait_s: float) -> ResellerError:
    again = f"the next login is possible in {wait_s:.0f} s"
    match reason:
        case Shut.REFUSED:
            return LoginRefused(TOKEN.name, f"the credentials were refused; {again}")
        case Shut.FAULT:
            return TokenFault(TOKEN.name, f"the last login's token was refused; {again}")
        case Shut.OUTAGE | Shut.INTERVAL:
            return ServiceUnavailable(TOKEN.name, f"the last login got no answer; {again}")
        case _:
            assert_never(reason)

"""The SSO token that all processes share, and the protocol that limits logins to one per lapse.

A store keeps one token and one gate. The token has a *generation*, a random name that is only compared for equality. A
counter could repeat values if the store loses its last writes. The gate says who may log in, and when:

- a login is a *turn*, taken with a nonce and a lease. The nonce becomes the generation of the new token;
- a token is *proven* by its first accepted request. Until then the gate stays closed for a pause that grows with every
  login in a row without a proven token, so that a fault never causes a storm of logins;
- a 401 is reported to the store with its *scope*: the operation and the institution. A scope that is refused with two
  tokens in a row is *barred*: the token is good, but not for this scope, and its 401s cause no further login;
- every operation may be repeated with the same arguments (a client may repeat one whose answer was lost) and leaves the
  same state as once.

Spec: Authentication; Limits (30 minutes, sliding on each successful request).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from callkeeper.service.secret import Secret

TOKEN_TTL_S = 1800.0
"""Life of a token after its last successful use. Spec: Limits. Assumed (`token-life`): ``expiresOn`` says the same; it
is not used."""


SUSPICION_S = 60.0
"""A scope is barred if two tokens are refused for it within this many seconds."""

FIRST_WAIT_S = 1.0
"""How long a scope that has just been barred is not tried, in seconds."""

PROBE_EVERY_S = 3.0
"""How often one request tries a scope that has been barred for longer. Earlier, it waits for as long as it is barred.

If a service answers 401 now and then, a call is held up for a second. One that refuses an institution gets few
requests.
"""

OVERTAKE_S = 3.0
"""After a failed login the next one has this many seconds, then another may start beside it: it may hang."""

ALIVE_S = 15.0
"""Without an accepted request for this long, a token may have lapsed. A 401 of a barred scope then leads to a login."""


def probe_wait_s(barred_for_s: float) -> float:
    """Return after how many seconds a barred scope is tried again."""
    return max(FIRST_WAIT_S, min(PROBE_EVERY_S, barred_for_s))


@dataclass(frozen=True, slots=True)
class SsoToken:
    """The token in use.

    Attributes:
        generation: Random name of its login.
        value: The token.
        institution_keys: The keys that the account can manage, as of the login.
        age_s: Seconds since the login, when it was loaded.
        is_proven: Whether a request with it was ever accepted.
        barred: The barred scopes, and for how many seconds each is not tried from now on.
    """

    generation: str
    value: Secret
    institution_keys: frozenset[str]
    age_s: float
    is_proven: bool = False
    barred: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a 401 means.

    Attributes:
        is_current: Whether the refused token is the current one; if not, there is a newer one.
        is_proven: Whether it is the current one and was ever accepted.
        barred_s: The scope is barred and not tried for this many seconds; None: it is not barred, so a login may help.
        is_news: Whether this refusal barred it.
    """

    is_current: bool
    is_proven: bool = False
    barred_s: float | None = None
    is_news: bool = False


@dataclass(frozen=True, slots=True)
class Login:
    """The result of a successful login."""

    value: Secret
    institution_keys: frozenset[str]


class Shut(StrEnum):
    """Why no login may start now."""

    INTERVAL = "interval"
    """The last login succeeded only a moment ago."""
    REFUSED = "refused"
    """The credentials were refused."""
    FAULT = "fault"
    """The token of the last login was never accepted."""
    OUTAGE = "outage"
    """The last login got no answer."""


@dataclass(frozen=True, slots=True)
class LoginGranted:
    """The caller may log in. ``failures`` counts the logins in a row without a proven token, including this one."""

    failures: int


@dataclass(frozen=True, slots=True)
class LoginPending:
    """Another process is logging in; look again soon."""


@dataclass(frozen=True, slots=True)
class LoginShut:
    """No login may start for ``wait_s`` seconds."""

    reason: Shut
    wait_s: float


LoginTurn = SsoToken | LoginGranted | LoginPending | LoginShut


class TokenStore(Protocol):
    """Stores the token and the gate. All operations are atomic and may be repeated."""

    async def load(self) -> SsoToken | None:
        """Return the token; None if there is none or it has expired."""

    async def slide(self, generation: str, *, min_interval_s: float) -> None:
        """Record an accepted request: prove the token, extend its expiry, forget failed logins.

        It does nothing for any generation but the current one. The next login may come ``min_interval_s`` after this
        token's login.
        """

    async def refuse(self, generation: str, scope: str) -> Refusal:
        """Record that a request of a scope got 401, and return what that means. An older generation changes nothing."""

    async def clear(self, scope: str) -> bool:
        """Record an accepted request of a scope that was refused before. Return whether it was barred.

        The other barred scopes of its institution may be tried at once.
        """

    async def probe(self, scope: str) -> float | None:
        """Ask whether a barred scope may be tried now: 0 if so, else after how many seconds; None if it is not barred.

        Only one request at a time may.
        """

    async def claim_login(self, nonce: str, *, instead_of: str | None, lease_s: float, account: str = "") -> LoginTurn:
        """Ask for a usable token other than ``instead_of``, or for the right to log in.

        After a failed login a turn lasts at most `OVERTAKE_S`. If credentials were refused, the pause after that
        applies only to the same credentials, which ``account`` identifies.
        """

    async def save_login(self, nonce: str, login: Login, *, pause_s: float) -> SsoToken | None:
        """End the turn with a token, whose generation is the nonce. Return None if another process saved one first.

        Until the token is proven the gate stays closed for ``pause_s`` (`Shut.FAULT`).
        """

    async def fail_login(self, nonce: str, reason: Shut, *, pause_s: float, account: str = "") -> None:
        """End the turn without a token, and close the gate for ``pause_s``. An existing token stays."""

"""The SSO token that all processes share, and the turn-taking that keeps logins to one per lapse.

A store keeps one token and one gate. The token has a *generation*, a random name compared for equality only: a counter
would repeat itself when a store loses its last writes. The gate says who may log in, and when:

- a login is a *turn*, taken with a nonce and a lease; the nonce becomes the generation of the token it brings;
- a token is *proven* by its first accepted request. Until then the gate stays shut for a pause that grows with every
  login in a row that brought no proven token, so that a fault never becomes a storm of logins;
- a 401 is told to the store with its *scope*: the operation and the institution. A scope that is refused with two tokens in
  a row is *barred*: the token is good, this scope is not, and a 401 of it leads to no further login;
- every operation may be repeated with the same arguments (a client may repeat one whose answer was lost) and
  leaves the same state as once.

Spec: Authentication; Limits (30 minutes, sliding on each successful request).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from reseller.secret import Secret

TOKEN_TTL_S = 1800.0
"""Life of a token after its last successful use. Spec: Limits. Assumed: ``expiresOn`` says the same; it is not used."""


SUSPICION_S = 60.0
"""How soon after each other two tokens have to be refused for a scope to be barred."""

FIRST_WAIT_S = 1.0
"""How long a scope that has just been barred is left alone."""

PROBE_EVERY_S = 3.0
"""How often one request tries a scope that has been barred for longer; before, the waits are as long as it has been barred.

A service that answers 401 now and then holds a call up for a second, one that refuses an institution gets few requests.
"""

OVERTAKE_S = 3.0
"""After a failed login, how long the next one may take until another is made beside it: the service may let it hang."""

ALIVE_S = 15.0
"""After so long without an accepted request a token may have lapsed: a barred scope's 401 leads to a login then."""


def probe_wait_s(barred_for_s: float) -> float:
    """Return after how many seconds a barred scope is tried once more."""
    return max(FIRST_WAIT_S, min(PROBE_EVERY_S, barred_for_s))


@dataclass(frozen=True, slots=True)
class SsoToken:
    """The token in use.

    Attributes:
        generation: Random name of the login that brought it.
        value: The token.
        institution_keys: What the login said the account can manage.
        age_s: Seconds since the login, when it was loaded.
        is_proven: Whether a request with it was ever accepted.
        barred: Scopes that are barred, and for how many seconds each is left alone from now on.
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
        is_proven: Whether the token that was refused is the current one and was ever accepted.
        is_current: Whether it is the current one; if not, another one is there already.
        barred_s: The scope is barred, and left alone for so many seconds; None: it is not barred, a login may help.
        is_news: Whether this refusal barred it.
    """

    is_current: bool
    is_proven: bool = False
    barred_s: float | None = None
    is_news: bool = False


@dataclass(frozen=True, slots=True)
class Login:
    """What a successful login brought."""

    value: Secret
    institution_keys: frozenset[str]


class Shut(StrEnum):
    """Why nobody may log in for now."""

    INTERVAL = "interval"
    """The last login was fine and just now."""
    REFUSED = "refused"
    """The credentials were refused."""
    FAULT = "fault"
    """The token that the last login brought was never accepted."""
    OUTAGE = "outage"
    """The last login got no answer."""


@dataclass(frozen=True, slots=True)
class LoginGranted:
    """It is your turn. ``failures`` counts the logins in a row that brought no proven token, this one included."""

    failures: int


@dataclass(frozen=True, slots=True)
class LoginPending:
    """Somebody else is logging in; look again soon."""


@dataclass(frozen=True, slots=True)
class LoginShut:
    """Nobody may log in for ``wait_s`` seconds."""

    reason: Shut
    wait_s: float


LoginTurn = SsoToken | LoginGranted | LoginPending | LoginShut


class TokenStore(Protocol):
    """Where the token and the gate are kept. All operations are atomic and may be repeated."""

    async def load(self) -> SsoToken | None:
        """Return the token, or None if there is none or its time is over."""

    async def slide(self, generation: str, *, min_interval_s: float) -> None:
        """Note an accepted request: prove the token, move its expiry, forget failed logins.

        Does nothing for any generation but the current. The next login may come ``min_interval_s`` after this
        token's login.
        """

    async def refuse(self, generation: str, scope: str) -> Refusal:
        """Note a request of a scope that was answered 401, and return what that means.

        An older generation changes nothing.
        """

    async def clear(self, scope: str) -> bool:
        """Note an accepted request of a scope that was refused before; return whether it was barred.

        The other barred scopes of its institution may be tried at once.
        """

    async def probe(self, scope: str) -> float | None:
        """Ask whether a barred scope may be tried now: 0 if so, else after how many seconds; None if it is not barred.

        One request at a time may.
        """

    async def claim_login(self, nonce: str, *, instead_of: str | None, lease_s: float, account: str = "") -> LoginTurn:
        """Ask for a usable token other than ``instead_of``, or for the turn to get one.

        After a failed login a turn lasts `OVERTAKE_S` at most. Where credentials were refused, the pause after that holds
        for the same credentials only: ``account`` tells them apart.
        """

    async def save_login(self, nonce: str, login: Login, *, pause_s: float) -> SsoToken | None:
        """End the turn with a token, whose generation is the nonce; None if somebody else has brought one meanwhile.

        Until the token is proven the gate stays shut for ``pause_s`` (`Shut.FAULT`).
        """

    async def fail_login(self, nonce: str, reason: Shut, *, pause_s: float, account: str = "") -> None:
        """End the turn without a token; shut the gate for ``pause_s``. Any token there stays."""

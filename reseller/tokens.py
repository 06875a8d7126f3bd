"""The SSO token that all processes share, and the turn-taking that keeps logins to one per lapse.

A store keeps one token and one gate. The token has a *generation*, a random name compared for equality only: a counter
would repeat itself when a store loses its last writes. The gate says who may log in, and when:

- a login is a *turn*, taken with a nonce and a lease; the nonce becomes the generation of the token it brings;
- a token is *proven* by its first accepted request. Until then the gate stays shut for a pause that grows with every
  login in a row that brought no proven token, so that a fault never becomes a storm of logins;
- every operation may be repeated with the same arguments (a client may repeat one whose answer was lost) and
  leaves the same state as once.

Spec: Authentication; Limits (30 minutes, sliding on each successful request).
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from reseller.secret import Secret

TOKEN_TTL_S = 1800.0
"""Life of a token after its last successful use. Spec: Limits. Assumed: ``expiresOn`` says the same; it is not used."""


@dataclass(frozen=True, slots=True)
class SsoToken:
    """The token in use.

    Attributes:
        generation: Random name of the login that brought it.
        value: The token.
        institution_keys: What the login said the account can manage.
        age_s: Seconds since the login, when it was loaded.
        is_proven: Whether a request with it was ever accepted.
        is_lapsed: Whether a request with it was refused after it was proven.
    """

    generation: str
    value: Secret
    institution_keys: frozenset[str]
    age_s: float
    is_proven: bool = False
    is_lapsed: bool = False


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
        """Note an accepted request: prove the token, move its expiry, forget failures.

        Does nothing for any generation but the current. The next login may come ``min_interval_s`` after this
        token's login.
        """

    async def lapse(self, generation: str) -> bool:
        """Note a refused request; return whether that is a fault: the current token, and never proven.

        A proven token is marked as lapsed. An older generation changes nothing.
        """

    async def claim_login(self, nonce: str, *, instead_of: str | None, lease_s: float) -> LoginTurn:
        """Ask for a usable token other than ``instead_of``, or for the turn to get one.

        A token that has lapsed, or that is ``instead_of``, does not count as usable.
        """

    async def save_login(self, nonce: str, login: Login, *, pause_s: float) -> SsoToken | None:
        """End the turn with a token, whose generation is the nonce; None if the turn was lost meanwhile.

        Until the token is proven the gate stays shut for ``pause_s`` (`Shut.FAULT`).
        """

    async def fail_login(self, nonce: str, reason: Shut, *, pause_s: float) -> None:
        """End the turn without a token; shut the gate for ``pause_s``. Any token there stays."""

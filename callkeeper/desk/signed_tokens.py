"""Signed tokens that are not stored: an instant, random bytes, and a signature of both.

Any process with the same key recognises a token, also after a restart. Keys are derived slowly, so a token cannot be used
to guess a password quickly. Cookies, stream tickets and the tokens in our forms are such tokens.
"""

import hmac
import secrets
import time
from collections.abc import Callable
from functools import lru_cache
from hashlib import scrypt, sha256
from typing import Final

from callkeeper.service.secret import Secret

FROM_THE_FUTURE_S: Final = 120
"""How far the clocks of two web processes may be apart."""

_NONCE_BYTES: Final = 9

# An HMAC keyed by the password could be tried with 300,000 passwords a second (*measured*); this with four.
# 32 MiB and about a quarter of a second for each guess of a password; OWASP's parameters for scrypt with this much memory.
_SCRYPT_N: Final = 2**15
_SCRYPT_R: Final = 8
_SCRYPT_P: Final = 3
_SCRYPT_MEMORY: Final = 64 * 2**20


@lru_cache(maxsize=16)
def key_of_login(user: str, password: Secret) -> bytes:
    """Derive the key of a login, slowly: a person chose the password, so guessing must be expensive."""
    return scrypt(
        password.reveal().encode(),
        salt=f"callkeeper login {user}".encode(),
        n=_SCRYPT_N,
        r=_SCRYPT_R,
        p=_SCRYPT_P,
        maxmem=_SCRYPT_MEMORY,
        dklen=32,
    )


def key_for(purpose: str, key: bytes) -> bytes:
    """Derive the key of one purpose, as HKDF does. A signature for one purpose is invalid for any other."""
    return hmac.digest(key, f"callkeeper {purpose}\x01".encode(), sha256)


class Signer:
    """Issues and recognises tokens."""

    def __init__(self, key: bytes, *, valid_s: float, now: Callable[[], float] = time.time) -> None:
        """``key``: 32 bytes for this purpose alone."""
        self._key = key
        self._valid_s = valid_s
        self._now = now

    def issue(self) -> str:
        """Return a new token; no two are the same."""
        return self._signed(f"{int(self._now())}.{secrets.token_urlsafe(_NONCE_BYTES)}")

    def age_s(self, token: str | None) -> float | None:
        """Return how old a token is; None if it is too old or was not signed with this key."""
        head, _, _ = (token or "").rpartition(".")
        issued_at, dot, _ = head.partition(".")
        if not (dot and issued_at.isascii() and issued_at.isdecimal() and len(issued_at) < 12):
            return None
        age_s = self._now() - int(issued_at)
        is_ours = hmac.compare_digest(_octets(self._signed(head)), _octets(token or ""))
        return age_s if is_ours and -FROM_THE_FUTURE_S <= age_s <= self._valid_s else None

    def is_valid(self, token: str | None) -> bool:
        """Tell whether a token is one of ours, and not too old."""
        return self.age_s(token) is not None

    def _signed(self, head: str) -> str:
        return f"{head}.{hmac.digest(self._key, _octets(head), sha256).hex()}"


def _octets(text: str) -> bytes:
    return text.encode("utf-8", "replace")


FORM_FIELD: Final = "form_token"
"""The name of the form field that carries a token."""

FORM_VALID_S: Final = 12 * 3600
"""How long a page can stay open before its forms expire."""


def form_tokens(key: bytes, *, now: Callable[[], float] = time.time) -> Signer:
    """Return the signer of tokens that prove that one of our own pages asked for a change.

    A browser sends the login along with any request that a foreign page has started. The token is in our pages only.
    Without a key, of a session or a login, the tokens are invalid.
    """
    return Signer(key_for("form tokens", key), valid_s=FORM_VALID_S, now=now)

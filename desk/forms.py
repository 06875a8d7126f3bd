"""Tokens that prove that a change was asked for by one of our own pages.

A browser sends the watchers' login along with whatever request a foreign page has started; the token stands in our pages
only. It is a signature, so nothing is kept: any web process takes what another one has issued, also after a restart.
"""

import hmac
import time
from collections.abc import Callable
from hashlib import sha256
from typing import Final

from reseller.secret import Secret

FIELD: Final = "form_token"
"""The name of the form field that carries a token."""

HEADER: Final = "x-form-token"
"""The name of the header that carries one, where a script posts."""

VALID_S: Final = 12 * 3600
"""How long a page may be kept open before its buttons have to be asked for anew."""

_FROM_THE_FUTURE_S: Final = 120
"""How far the clocks of two web processes may be apart."""


class FormTokens:
    """Issues and recognises the tokens of one login."""

    def __init__(
        self,
        user: str,
        password: Secret,
        *,
        purpose: str = "form tokens",
        valid_s: float = VALID_S,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Prepare to sign.

        Args:
            user: The watchers' name.
            password: Theirs; a changed password makes every token worthless.
            purpose: What the tokens are for; those of another purpose are not taken.
            valid_s: How long a token is good.
            now: Seconds since the epoch.
        """
        self._key = hmac.digest(password.reveal().encode(), f"{purpose} of {user}".encode(), sha256)
        self._valid_s = valid_s
        self._now = now

    def issue(self) -> str:
        """Return a token for a page that is being written."""
        return self._signed(int(self._now()))

    def is_valid(self, token: str | None) -> bool:
        """Tell whether a token is one of ours, and not too old."""
        issued_at, dot, _ = (token or "").partition(".")
        if not (dot and issued_at.isascii() and issued_at.isdecimal() and len(issued_at) < 12):
            return False
        age_s = self._now() - int(issued_at)
        is_ours = hmac.compare_digest(self._signed(int(issued_at)).encode(), (token or "").encode("utf-8", "replace"))
        return is_ours and -_FROM_THE_FUTURE_S <= age_s <= self._valid_s

    def _signed(self, issued_at: int) -> str:
        return f"{issued_at}.{hmac.digest(self._key, str(issued_at).encode(), sha256).hex()}"

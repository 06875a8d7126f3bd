"""Who may use the desk: software that knows a token. Each token has a name, which is in the trail of what it asked for."""

import hmac
from collections.abc import Sequence
from typing import Final

import msgspec

from reseller.secret import Secret

MAX_CREDENTIALS: Final = 512
"""Bytes of an Authorization header that are compared; no token is as long."""


class DeskToken(msgspec.Struct, frozen=True):
    """One token: its name, its value, and the institutions it is good for (None: all)."""

    name: str
    secret: Secret
    institutions: frozenset[str] | None = None

    def may_see(self, institution_key: str) -> bool:
        """Tell whether calls of an institution exist for whoever holds this token."""
        return self.institutions is None or institution_key in self.institutions


class DeskTokens:
    """Recognises tokens, as bytes and in a time that tells nothing about their values."""

    def __init__(self, tokens: Sequence[DeskToken]) -> None:
        self._tokens = [(token, token.secret.reveal().encode()) for token in tokens]

    def recognise(self, authorization: bytes) -> DeskToken | None:
        """Return the token of an Authorization header (``Bearer ...``), None if it is nobody's."""
        scheme, _, offered = authorization[:MAX_CREDENTIALS].partition(b" ")
        offered = offered.strip()
        matches = [token for token, value in self._tokens if hmac.compare_digest(offered, value)]
        return matches[0] if matches and scheme.lower() == b"bearer" else None

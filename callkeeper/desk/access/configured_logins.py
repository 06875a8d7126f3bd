"""The logins that are configured by settings: the emergency login, and the identity provider.

Every process reads settings, so this module imports neither the password hashes nor the web framework.
"""

import hmac
from base64 import b64decode
from pathlib import Path

import msgspec

from callkeeper.desk.access.rights import Rights
from callkeeper.desk.signed_tokens import Signer, form_tokens, key_for, key_of_login
from callkeeper.service.proxy import Proxy
from callkeeper.service.secret import Secret


class AdminLogin(msgspec.Struct, frozen=True):
    """The one pair of credentials that the environment holds."""

    user: str
    password: Secret

    def key_for(self, purpose: str) -> bytes:
        """Derive a key that changes with the password."""
        return key_for(purpose, key_of_login(self.user, self.password))

    @property
    def forms(self) -> Signer:
        """Return the signer of form tokens. A changed password invalidates all of them."""
        return form_tokens(key_of_login(self.user, self.password))

    def is_sent(self, authorization: str) -> bool:
        scheme, _, encoded = authorization.partition(" ")
        try:
            offered = b64decode(encoded.strip(), validate=True)
        except ValueError:
            offered = b""
        return self._is(offered) and scheme.lower() == "basic"

    def is_typed(self, user: str, password: str) -> bool:
        """Tell whether a typed name and password are these. A name with a colon is refused: it would be counted apart."""
        return self._is(f"{user}:{password}".encode("utf-8", "replace")) and ":" not in user

    def _is(self, offered: bytes) -> bool:
        return hmac.compare_digest(offered, f"{self.user}:{self.password.reveal()}".encode())


class Grant(Rights, frozen=True, kw_only=True):
    """The rights that a value of the role claim gives."""

    value: str


class OidcConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The provider, our registration there, and how its claims become a person. ``ca``: the authorities trusted for it."""

    issuer: str
    client_id: str
    client_secret: Secret
    redirect_uri: str
    role_claim: str
    operator_claim: str
    grants: tuple[Grant, ...]
    ca: Path | None = None
    proxy: Proxy | None = None

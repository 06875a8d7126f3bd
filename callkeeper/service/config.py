"""The client's configuration: where the service is, who we are, and limits for requests and answers."""

import hmac
import ipaddress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from callkeeper.service.proxy import Proxy
from callkeeper.service.secret import Secret

_MIB = 1024 * 1024

REQUEST_DEADLINE_S = 6.0
"""Seconds from the start of an effect, including a login it needs, to the last byte of its answer.

A listing, a read or a check may take up to `PATIENCE_S` instead (``callkeeper.service.exchange``). The length of a
worker's lease is derived from this number (``callkeeper.calls.claimed_item.Lease``). Change it only here."""

PATIENCE_S = 20.0
"""The same of a listing, a read or a check that keeps its lease meanwhile."""

MAX_RETRY_AFTER_S = 60.0
"""The longest pause that is kept to, in seconds, however long the service asks for."""


@dataclass(frozen=True, slots=True)
class LoginPolicy:
    """How often the service account may log in, over all processes that share a token store.

    Attributes:
        min_interval_s: Between two logins whose tokens were both accepted.
        refused_pause_s: After credentials were refused; doubles with every further failure.
        max_pause_s: Upper bound of the doubling.
        fault_pause_s: After a token that was never accepted.
        outage_pause_s: From the beginning of a login without an answer.
        poll_s: How often to check whether another process's login is done.
        cache_s: How long a process uses the token without asking the store.
        slide_every_s: How often at most a success extends the token's expiry in the store.
    """

    min_interval_s: float = 5.0
    refused_pause_s: float = 30.0
    max_pause_s: float = 900.0
    fault_pause_s: float = 5.0
    outage_pause_s: float = 1.0
    poll_s: float = 0.05
    cache_s: float = 15.0
    slide_every_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceConfig:
    """The service as this client uses it.

    Attributes:
        base_url: Without ``/external``. Must be https, unless it is on loopback or ``allow_plain_http``.
        access_token: Issued at onboarding; sent at login only.
        email: Of the service account; sent at login only.
        password: Of the service account; sent at login only.
        requested_by: Core username recorded for requests that name no other.
        deadline_s: Of one request; see `REQUEST_DEADLINE_S`. Tests shorten it. Assumed (`answer-time`): an answer comes
            within it, and to a listing, a read or a check within ``patience_s``.
        max_body_bytes: Of an answer, after decompression.
        max_connections: Kept-alive connections for reads and checks together: as many as a worker has calls in flight.
        ca_file: PEM file of certificate authorities to trust besides the usual ones.
        proxy: The outgoing proxy to the service; None: it is reached directly.
        allow_plain_http: Accept http beyond loopback. Credentials then cross the network unencrypted.
        login: How often to log in.

    Raises:
        ValueError: The base URL is malformed, or would send credentials unencrypted.
        TypeError: A credential is not a `Secret`.
    """

    base_url: str
    access_token: Secret
    email: Secret
    password: Secret
    requested_by: str = "callkeeper"
    deadline_s: float = REQUEST_DEADLINE_S
    patience_s: float = PATIENCE_S
    max_body_bytes: int = 8 * _MIB
    max_connections: int = 256
    ca_file: str | None = None
    proxy: Proxy | None = None
    allow_plain_http: bool = False
    login: LoginPolicy = field(default_factory=LoginPolicy)

    @property
    def account(self) -> str:
        """Return an identifier of these credentials. It reveals nothing without the access token."""
        credentials = f"{self.base_url}\0{self.email.reveal()}\0{self.password.reveal()}"
        return hmac.digest(self.access_token.reveal().encode(), credentials.encode(), "sha256").hex()[:8]

    def __post_init__(self) -> None:
        for name in ("access_token", "email", "password"):
            if not isinstance(getattr(self, name), Secret):
                raise TypeError(f"{name} must be a Secret")
        _check_url(self.base_url, allow_plain_http=self.allow_plain_http)
        object.__setattr__(self, "base_url", self.base_url.rstrip("/"))


def _check_url(url: str, *, allow_plain_http: bool) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise ValueError("the service URL must look like https://host")
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError("the service URL must have no user, query or fragment")
    if parts.scheme == "http" and not allow_plain_http and not is_loopback(parts.hostname):
        raise ValueError("the service URL must be https, unless it is on this machine")


def is_loopback(host: str) -> bool:
    """Tell whether a host is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

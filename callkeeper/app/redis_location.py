"""Parse the URL of Redis: a server, a server behind TLS, a socket, or a master that sentinels name.

Certificates are verified unless a separate setting says otherwise: a URL from a platform must not be able to disable
that.
"""

import ipaddress
import re
import ssl
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec
from redis.asyncio.connection import ConnectionPool as AsyncConnectionPool
from redis.asyncio.connection import parse_url
from redis.connection import ConnectionPool
from redis.exceptions import RedisError

from callkeeper.service.secret import Secret

SENTINEL_PORT: Final = 26379

_PLAIN: Final = {"redis", "rediss", "unix"}
_SENTINEL: Final = {"redis+sentinel": "redis", "rediss+sentinel": "rediss"}
_OWN_OPTIONS: Final = ("sentinel_username", "sentinel_password")
_INTERNAL: Final = (".internal", ".local", ".svc", ".localdomain")
_NOT_IN_URL: Final = {"ssl_cert_reqs", "ssl_check_hostname", "ssl_ca_certs"}


_UNQUOTED: Final = re.compile(r"#|[/?].*@", re.DOTALL)
"""What a URL has only if a password was not percent-encoded. Parsers end the password there, and take the rest for an
address, which is shown."""


class Tls(StrEnum):
    """How the certificate of a Redis behind TLS is checked."""

    VERIFIED = "verified"  # signed by an authority that is known, for this host
    UNVERIFIED = "unverified"  # any certificate: the connection is encrypted, but the server is not authenticated


class Sentinels(NamedTuple):
    """The addresses of the sentinels, and the master's name."""

    addresses: tuple[tuple[str, int], ...]
    master: str
    username: str | None
    password: Secret | None


class RedisLocation(msgspec.Struct, frozen=True, kw_only=True):
    """Where Redis is.

    Attributes:
        url: As the Redis client reads it. With sentinels, its host is the first of them and is not used.
        sentinels: None if the URL names the server itself.
        address: The URL for logs and pages: without user, password and options.
    """

    url: Secret
    sentinels: Sentinels | None
    address: str
    tls: Tls = Tls.VERIFIED
    authorities: Path | None = None
    """Certificates of authorities that are trusted besides the system's."""

    @property
    def uses_tls(self) -> bool:
        return self.url.reveal().startswith("rediss://")

    @property
    def is_exposed(self) -> bool:
        """Tell whether the connection leaves this machine and its private network without being encrypted.

        Assumed (`private-host`): a name without a dot, or with an internal suffix, is in the private network.
        """
        if self.uses_tls:
            return False
        if self.sentinels is not None:
            return not all(_is_near(host) for host, _ in self.sentinels.addresses)
        place = _options_of(self.url.reveal())
        return "host" in place and not _is_near(str(place["host"]))

    def tls_options(self) -> dict[str, Any]:
        """Return the Redis client's options for certificates; none without TLS."""
        if not self.uses_tls:
            return {}
        trusted = {"ssl_ca_certs": str(self.authorities)} if self.authorities else {}
        if self.tls is Tls.UNVERIFIED:
            return {"ssl_cert_reqs": "none", "ssl_check_hostname": False, **trusted}
        return {"ssl_cert_reqs": "required", "ssl_check_hostname": True, **trusted}


def tls_options(url: str, authorities: Path | None) -> dict[str, str]:
    """Return libpq's options for certificates that a PostgreSQL URL does not have itself.

    On this machine and in its private network no certificate is required. Everywhere else it is verified. libpq takes one
    file: ``authorities`` are trusted instead of the system's.
    """
    parts = urlsplit(url)
    said = dict(parse_qsl(parts.query))
    if parts.hostname is None or "sslrootcert" in said or said.get("sslmode") == "require":
        return {}
    if "sslmode" not in said and _is_near(parts.hostname):
        return {}
    known = ssl.get_default_verify_paths()
    trusted = {"sslrootcert": str(authorities or known.cafile or known.openssl_cafile)}
    return trusted if "sslmode" in said else {"sslmode": "verify-full", **trusted}


def parse_location(text: str) -> RedisLocation:
    """Read ``redis://``, ``rediss://``, ``unix://``, or either with sentinels.

    With sentinels: ``redis+sentinel://user:password@host:26379,host2:26379/master/0``; user and password are the
    server's, those of the sentinels are the options ``sentinel_username`` and ``sentinel_password``.

    Raises:
        ValueError: What is wrong, without the text: it may hold a password.
    """
    scheme, separator, rest = text.partition("://")
    if _UNQUOTED.search(rest) and scheme != "unix":
        raise ValueError("has a #, / or ? in the user's name or password: write %23, %2F or %3F instead")
    if separator and scheme in _SENTINEL:
        return _behind_sentinels(_SENTINEL[scheme], scheme, rest)
    if not separator or scheme not in _PLAIN:
        raise ValueError("must start with redis://, rediss://, unix://, redis+sentinel:// or rediss+sentinel://")
    place = _options_of(text)
    if not (place.get("host") or place.get("path")):
        raise ValueError("names no host")
    parts = urlsplit(text)
    database = parts.path.strip("/")
    if scheme != "unix" and database and not database.isdecimal():
        raise ValueError("must end in the number of a database: redis://host:6379/0")
    address = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
    return RedisLocation(url=Secret(text), sentinels=None, address=address)


def _behind_sentinels(plain: str, scheme: str, rest: str) -> RedisLocation:
    rest, _, query = rest.partition("?")
    everybody, _, path = rest.partition("/")
    credentials, at, hosts = everybody.rpartition("@")
    addresses = tuple(_address(host) for host in hosts.split(","))
    master, _, db = path.partition("/")
    if not master:
        raise ValueError("names no master: redis+sentinel://host:26379,host2:26379/<master>/0")
    if db and not db.isdecimal():
        raise ValueError("must end in the number of a database: /<master>/0")
    options = dict(parse_qsl(query, keep_blank_values=True))
    username, password = (options.pop(name, None) for name in _OWN_OPTIONS)
    first, port = addresses[0]
    first = f"[{first}]" if ":" in first else first
    url = f"{plain}://{credentials}{at}{first}:{port}/{db or 0}"
    if options:
        url += f"?{urlencode(options)}"
    _options_of(url)
    return RedisLocation(
        url=Secret(url),
        sentinels=Sentinels(addresses, master, username, Secret(password) if password else None),
        address=f"{scheme}://{hosts}/{master}/{db or 0}",
    )


def _address(text: str) -> tuple[str, int]:
    """Read a sentinel's host, with or without its port."""
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError("names a sentinel whose port is no number") from None
    if not host:
        raise ValueError("names no sentinel: host:26379, several separated by commas")
    return host, port or SENTINEL_PORT


def _is_near(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return "." not in host or host.endswith(_INTERNAL)


def _options_of(url: str) -> dict[str, Any]:
    try:
        options = dict(parse_url(url))
    except ValueError:
        raise ValueError("is not a URL that the Redis client understands") from None
    if options.keys() & _NOT_IN_URL:
        raise ValueError(
            "must not say how certificates are verified: set CALLKEEPER_CA, or CALLKEEPER_REDIS_TLS=unverified"
        )
    if "decode_responses" in options or not _is_known_to_clients(url):
        raise ValueError("has an option, behind the ?, that the Redis client does not know or we cannot use")
    return options


def _is_known_to_clients(url: str) -> bool:
    """Tell whether both Redis clients can make a connection with what follows the question mark. This opens none."""
    try:
        for pool in (ConnectionPool, AsyncConnectionPool):
            pool.from_url(url).make_connection()
    except (TypeError, ValueError, AttributeError, RedisError):
        return False
    return True

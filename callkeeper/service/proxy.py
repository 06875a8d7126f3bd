"""An outgoing HTTP proxy, through which a bank's network reaches other hosts.

It opens a tunnel (CONNECT): TLS is between us and the host, so the proxy sees the host's name, and none of the requests.
"""

import re
from base64 import b64encode
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final
from urllib.parse import unquote, urlsplit

from callkeeper.service.secret import Secret

_HOST: Final = re.compile(r"[a-z0-9_.:-]+")


@dataclass(frozen=True, slots=True)
class Proxy:
    """Where the proxy is, and our credentials for it. With a user it asks for Basic authentication."""

    address: str
    user: str | None = None
    password: Secret = field(default_factory=lambda: Secret(""))
    direct: tuple[str, ...] = ()
    """Hosts that are reached without it, with those below them: ``core.example`` also means ``a.core.example``."""

    @classmethod
    def of(cls, text: str) -> "Proxy":
        """Read ``http://user:password@host:port, direct=core.example|login.example``; only host and port must be there.

        User and password are percent-encoded.

        Raises:
            ValueError: It is neither. The message does not repeat it.
        """
        text, *without = re.split(r",\s*direct=", text)
        direct = tuple(_host(host) for host in "".join(without).split("|")) if without else ()
        if not all(":" not in host or _is_address(host) for host in direct):
            raise ValueError("must name hosts without a port behind direct=: core.example means each of its ports")
        if len(without) > 1 or not all(map(_HOST.fullmatch, direct)):
            raise ValueError("must name hosts with | between them behind one direct=")
        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError:
            parts, port = urlsplit(""), None
        is_bare = parts.path in {"", "/"} and not parts.query and not parts.fragment
        if parts.scheme != "http" or not parts.hostname or port is None or not is_bare or not text.isprintable():
            raise ValueError("must be http://host:port of a proxy, or http://user:password@host:port")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        user = unquote(parts.username) if parts.username else None
        return cls(f"http://{host}:{port}", user, Secret(unquote(parts.password or "")), direct)

    def leaves_out(self, url: str) -> bool:
        """Tell whether an address is reached without the proxy."""
        host = (urlsplit(url).hostname or "").lower()
        return any(host == each or host.endswith(f".{each}") for each in self.direct)

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers of a request to the proxy itself. They go no further."""
        if self.user is None:
            return {}
        login = b64encode(f"{self.user}:{self.password.reveal()}".encode()).decode()
        return {"Proxy-Authorization": f"Basic {login}"}


def _host(text: str) -> str:
    """Return a host as it is compared: an IPv6 address may have brackets."""
    text = text.strip()
    is_bracketed = text.startswith("[") and text.endswith("]")
    return (text[1:-1] if is_bracketed else text.strip(".")).lower()


def _is_address(host: str) -> bool:
    try:
        return bool(ip_address(host))
    except ValueError:
        return False

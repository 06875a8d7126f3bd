"""An outgoing HTTP proxy, through which a bank's network reaches other hosts.

It opens a tunnel (CONNECT): TLS is between us and the host, so the proxy sees the host's name, and none of the requests.
"""

from base64 import b64encode
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from callkeeper.service.secret import Secret


@dataclass(frozen=True, slots=True)
class Proxy:
    """Where the proxy is, and our credentials for it. With a user it asks for Basic authentication."""

    address: str
    user: str | None = None
    password: Secret = field(default_factory=lambda: Secret(""))

    @classmethod
    def of(cls, text: str) -> "Proxy":
        """Read ``http://host:port`` or ``http://user:password@host:port``, both percent-encoded.

        Raises:
            ValueError: It is neither. The message does not repeat it.
        """
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
        return cls(f"http://{host}:{port}", user, Secret(unquote(parts.password or "")))

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers of a request to the proxy itself. They go no further."""
        if self.user is None:
            return {}
        login = b64encode(f"{self.user}:{self.password.reveal()}".encode()).decode()
        return {"Proxy-Authorization": f"Basic {login}"}

"""Reads the settings of the identity provider.

Every function raises ValueError with what is wrong and never with the text itself.
"""

from callkeeper.credentials import limits
from callkeeper.parsing import LOOPBACK, VISIBLE, split_address
from desk.access.configured_logins import Grant
from desk.access.rights import Role


def issuer(text: str) -> str:
    """Read the issuer of an identity provider. It is compared literally, so a slash at its end is kept."""
    parts = split_address(text)
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("must hold neither credentials, query nor fragment")
    if parts.scheme == "http" and parts.hostname not in LOOPBACK:
        raise ValueError("must be https, because it decides who can log in (http only to this machine)")
    return text


def plain_text(text: str) -> str:
    """Read a name: visible ASCII, no blanks."""
    if not VISIBLE.fullmatch(text):
        raise ValueError("must be visible ASCII characters without blanks")
    return text


def scope(text: str) -> str:
    """Read the scope of a login request."""
    words = text.split()
    if words[0] != "openid" or not all(map(VISIBLE.fullmatch, words)):
        raise ValueError("must be words with blanks between them, openid first")
    return " ".join(words)


def grants(text: str) -> tuple[Grant, ...]:
    """Read ``value=role`` or ``value=role@cu-1|cu-2``, separated by commas."""
    return tuple(_grant(part.strip()) for part in text.split(","))


def _grant(text: str) -> Grant:
    value, equals, rest = text.rpartition("=")
    role, limited, keys = rest.partition("@")
    if not (equals and value.strip() and role.strip() in set(Role)):
        raise ValueError(f"must be value=role, separated by commas; roles are {', '.join(Role)}")
    return Grant(value.strip(), Role(role.strip()), limits(keys.strip()) if limited else None)

"""Values from outside on their way into a request: quoted so that they cannot steer it, or refused.

An identifier may come from a forged push. Whatever it holds, it stays one part of the path that it was meant for,
and a header value stays one header.
"""

from urllib.parse import quote

from reseller.errors import Unsendable

MAX_LENGTH = 256
"""Characters in an identifier. Assumed: the Spec names no limit; real ones are GUIDs and short keys."""


def path_part(endpoint: str, identifier: str) -> str:
    """Quote an identifier as exactly one part of a path.

    ``.`` and ``..`` are refused because they are never quoted and mean other folders.

    Raises:
        Unsendable: Empty, too long, a folder name, or not text that UTF-8 can carry.
    """
    if not identifier or len(identifier) > MAX_LENGTH or identifier in (".", ".."):
        raise Unsendable(endpoint, "the identifier is empty, too long or a folder name")
    try:
        return quote(identifier, safe="")
    except UnicodeEncodeError:
        pass
    raise Unsendable(endpoint, "the identifier is not text")


def header_value(endpoint: str, name: str, value: str) -> str:
    """Return a header value unchanged if it can be sent as one.

    Raises:
        Unsendable: Empty, too long, with a line break, a control or a non-ASCII character, or with blanks at
            its ends, which the receiver would not see.
    """
    if value and len(value) <= MAX_LENGTH and value.isascii() and value.isprintable() and value == value.strip():
        return value
    raise Unsendable(endpoint, f"the value of {name} cannot be a header")

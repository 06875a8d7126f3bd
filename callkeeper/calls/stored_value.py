"""Reads a small value that we have stored, perhaps by another release, which may write it in another format."""

from typing import TypeVar

import msgspec

T = TypeVar("T")


def readable(stored: bytes | None, kind: type[T]) -> T | None:
    """Return a value; None if nothing is stored, or something that this release cannot read."""
    try:
        return msgspec.json.decode(stored, type=kind) if stored else None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None

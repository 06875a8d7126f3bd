"""The head of a chain in the log, signed if there is a key. Pure.

The database's owner can rewrite a chain, but not the heads that were logged elsewhere.
"""

import hashlib
import hmac
from collections.abc import Iterable
from typing import Any

import msgspec

from archive.writing import Head
from reseller.secret import Secret


class LoggedHead(msgspec.Struct, frozen=True, tag_field="event", tag="archive_head"):
    """A line of the log with the head of a chain. Other fields are ignored."""

    institution: str
    n: int
    hash: str
    signature: str | None = None


def signed_head(institution_key: str, head: Head, key: Secret | None) -> dict[str, Any]:
    """Return the fields that are logged for the head of a chain."""
    told = {"institution": institution_key, "n": head.n, "hash": head.hash}
    return told if key is None else {**told, "signature": _signature(institution_key, head, key)}


def parse_heads(lines: Iterable[bytes], key: Secret | None) -> tuple[dict[tuple[str, int], str], int]:
    """Return the heads in a log, and how many have no valid signature, if there is a key."""
    found: dict[tuple[str, int], str] = {}
    unsigned = 0
    for line in lines:
        try:
            told = msgspec.json.decode(line, type=LoggedHead)
        except msgspec.MsgspecError:
            continue
        right = key is None or hmac.compare_digest(
            _signature(told.institution, Head(told.n, told.hash), key).encode(), (told.signature or "").encode()
        )
        unsigned += not right
        if right:
            found[told.institution, told.n] = told.hash
    return found, unsigned


def _signature(institution_key: str, head: Head, key: Secret) -> str:
    text = f"{institution_key}\n{head.n}\n{head.hash}"
    return hmac.new(key.reveal().encode(), text.encode(), hashlib.sha256).hexdigest()

"""The heads of chains in the log, signed if there is a key. Pure.

The database's owner can rewrite a chain, but not the heads that were logged elsewhere. A head is logged when it is new, and
names the head that was logged before it, so that the log shows what it lacks.
"""

import hashlib
import hmac
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from callkeeper.archive.writing import Head
from callkeeper.service.secret import Secret

_EVENT: Final = "archive_head"
_JSON: Final = json.JSONDecoder()


class LoggedHead(msgspec.Struct, frozen=True, tag_field="event", tag=_EVENT):
    """A line of the log with the head of a chain. Other fields are ignored.

    ``before_n`` and ``before_hash`` are the head that was logged before it; None for the first one, and in lines of
    release 0.2.0. ``at_ms``: when it was read, so that later lines are later; None in lines of release 0.2.0, and if the
    chain was longer already.
    """

    institution: str
    n: int
    hash: str
    before_n: int | None = None
    before_hash: str | None = None
    at_ms: int | None = None
    signature: str | None = None

    @property
    def before(self) -> Head | None:
        return None if self.before_n is None or self.before_hash is None else Head(self.before_n, self.before_hash)


@dataclass(slots=True)
class HeadsLog:
    """The heads in a log.

    ``hashes`` are by institution and line, ``times`` too: when the head was read first, in ms. ``unsigned`` counts those
    without a valid signature, if there is a key; they are not among the others. ``unreadable`` counts lines that name a head
    and cannot be read. ``continued`` are the institutions whose first head here names one before it: the log begins later,
    or its beginning was taken away. ``faults`` say what is wrong with the log itself.
    """

    hashes: dict[tuple[str, int], str] = field(default_factory=dict)
    times: dict[tuple[str, int], int] = field(default_factory=dict)
    unsigned: int = 0
    unreadable: int = 0
    continued: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)


def signed_head(
    institution_key: str, head: Head, key: Secret | None, before: Head | None = None, at_ms: int | None = None
) -> dict[str, Any]:
    """Return the fields that are logged for the head of a chain: the one that was logged before it, and when it was read."""
    before_n, before_hash = (None, None) if before is None else before
    logged = LoggedHead(institution_key, head.n, head.hash, before_n, before_hash, at_ms)
    fields = {name: value for name, value in msgspec.structs.asdict(logged).items() if value is not None}
    return fields if key is None else {**fields, "signature": _signature(logged, key)}


def parse_heads(lines: Iterable[bytes], keys: Sequence[Secret] = ()) -> HeadsLog:
    """Return the heads in a log that one of the keys signed; without keys, all heads.

    Lines that are no heads are ignored, and what stands around the JSON of a line.
    """
    log, links = HeadsLog(), dict[tuple[str, int], Head]()
    for line in lines:
        if _EVENT.encode() not in line:
            continue
        objects = list(_objects(line.decode(errors="replace")))
        logged = next(filter(None, map(_head_of, objects)), None)
        if logged is None:
            log.unreadable += not any(found.get("event", _EVENT) != _EVENT for found in objects)
            continue
        head = Head(logged.n, logged.hash)
        if keys and not any(_is_signed(logged, key) for key in keys):
            log.unsigned += 1
            continue
        _take(log, logged.institution, head)
        if logged.at_ms is not None:
            log.times.setdefault((logged.institution, logged.n), logged.at_ms)
        if logged.before is not None:
            links[logged.institution, logged.n] = logged.before
    first = dict(sorted(log.hashes, reverse=True))  # the lowest of each institution comes last
    for (institution, n), before in sorted(links.items()):
        if n == first[institution]:
            log.continued.add(institution)
        elif (institution, before.n) not in log.hashes:
            log.faults.append(f"{institution} line {n}: the log lacks the head before it, of line {before.n}")
        elif log.hashes[institution, before.n] != before.hash:
            log.faults.append(f"{institution} line {before.n}: the log has two different hashes")
    return log


def _objects(line: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a line. Log collectors put labels in braces before it, and Docker the line into a field."""
    at = line.find("{")
    while at >= 0:
        after = at + 1
        with suppress(ValueError, RecursionError):
            found, after = _JSON.raw_decode(line, at)
            yield from _objects(found["log"]) if isinstance(found.get("log"), str) else [found]
        at = line.find("{", after)


def _head_of(found: dict[str, Any]) -> LoggedHead | None:
    with suppress(msgspec.MsgspecError, RecursionError, UnicodeError):
        return msgspec.json.decode(json.dumps(found), type=LoggedHead)  # no half characters, unlike msgspec.convert
    return None


def _take(log: HeadsLog, institution: str, head: Head) -> None:
    if log.hashes.setdefault((institution, head.n), head.hash) != head.hash:
        log.faults.append(f"{institution} line {head.n}: the log has two different hashes")


def _is_signed(logged: LoggedHead, key: Secret) -> bool:
    return hmac.compare_digest(_signature(logged, key).encode(), (logged.signature or "").encode())


def _signature(logged: LoggedHead, key: Secret) -> str:
    link = "" if logged.before is None else f"\n{logged.before.n}\n{logged.before.hash}"
    at = "" if logged.at_ms is None else f"\nat {logged.at_ms}"
    text = f"{logged.institution}\n{logged.n}\n{logged.hash}{link}{at}"
    return hmac.new(key.reveal().encode(), text.encode(), hashlib.sha256).hexdigest()

"""Generates the lists of docs/crash-matrix.md from the tables that the tests check.

``python -m tests.faults.matrix_document`` writes them into the document.
"""

from collections.abc import Iterator
from itertools import chain, groupby
from pathlib import Path

from tests.faults import protections
from tests.faults.matrix import Row, rows

DOCUMENT = Path(__file__).parents[2] / "docs" / "crash-matrix.md"

_TITLES = {
    "call": "A call is claimed and its notes are folded",
    "look": "A hint waits for the queue: the institution is asked to look once more",
    "read": "Stored details are read",
    "check": "One of the 20 checks is made",
    "assign": "A person is assigned",
    "enroll": "A voice is enrolled",
    "reject": "A voice is rejected",
    "settle": "A call is settled",
    "drop": "A hint is dropped",
    "listing": "A queue is listed",
}


_SERVICE = {
    "loses it": ", the service receives the request and does nothing",
    "answers 401": ", the service answers 401 and does nothing",
}


def document(text: str) -> str:
    """Return the document with current lists.

    Raises:
        ValueError: The document has no marker for the place of a list.
    """
    matrix = "\n".join(line for step, of_step in groupby(rows(), lambda row: row.step) for line in _list(step, of_step))
    return _placed(_placed(text, "crash matrix", matrix), "protections", protections.document())


def _placed(text: str, name: str, lists: str) -> str:
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    head, found, rest = text.partition(begin)
    _, closed, tail = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"{begin} and {end} are not both in the document")
    return f"{head}{begin}\n\n{lists}\n{end}{tail}"


def _list(step: str, of_step: Iterator[Row]) -> Iterator[str]:
    yield f"### {_TITLES[step]}"
    yield ""
    for text, described in groupby(chain.from_iterable(map(_described, of_step)), lambda pair: pair[1]):
        yield from protections.item(f"{', '.join(where for where, _ in described)}: {text}")
    yield ""


def _described(row: Row) -> Iterator[tuple[str, str]]:
    """Yield each place of a crash, and what follows."""
    then = f" Then: {allowed}." if (allowed := _allowed(row)) else ""
    also = " Also when frozen." if row.may_freeze and not row.frozen else ""
    yield f"`{row.at}`{_SERVICE.get(row.service, '')}", f"{row.words}{then}{also}"
    if row.may_freeze and row.frozen:
        yield f"`{row.at}`, frozen for longer than the lease", f"{_allowed(row.when_frozen()) or 'as usual'}."


_USUAL = {"enroll": "enrolled", "reject": "rejected"}


def _allowed(row: Row) -> str:
    """Describe what the table allows, except what the document calls usual."""
    if row.reasons == ("dropped",):
        return "no request at all, nothing left"
    parts = []
    if row.reasons != (_USUAL.get(row.step, "authenticated"),):
        parts.append(f"settled as {_either(row.reasons)}")
    if row.step == row.kind.value:
        if row.sent != (1,):
            parts.append(f"{_either(tuple(map(str, row.sent)))} past authentication")
        if set(row.ledger) != {"applied", "confirmed"}:
            parts.append(f"ledger {_either(row.ledger)}")
    if row.step == "check" and row.lost:
        parts.append(f"{row.lost} check lost")
    return ", ".join(parts)


def _either(values: tuple[str, ...]) -> str:
    return " or ".join(values)


if __name__ == "__main__":
    DOCUMENT.write_text(document(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")

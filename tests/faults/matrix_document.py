"""The crash matrix in words: the tables of docs/guarantees.md, made from the table that the tests hold the software to.

``python -m tests.faults.matrix_document`` writes them into the document anew.
"""

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from tests.faults.matrix import Row, rows

DOCUMENT = Path(__file__).parents[2] / "docs" / "guarantees.md"
BEGIN, END = "<!-- crash matrix: begin -->", "<!-- crash matrix: end -->"

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


def document() -> str:
    """Return the tables, one for each step."""
    return "\n".join(line for step, of_step in groupby(rows(), lambda row: row.step) for line in _table(step, of_step))


def placed(text: str) -> str:
    """Return a document with the tables in their place.

    Raises:
        ValueError: The document does not say where that is.
    """
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{BEGIN} and {END} are not both in the document")
    return f"{head}{BEGIN}\n\n{document()}\n{END}{tail}"


def _table(step: str, of_step: Iterator[Row]) -> Iterator[str]:
    yield f"### {_TITLES[step]}"
    yield ""
    yield "| killed at | what follows | allowed afterwards |"
    yield "|---|---|---|"
    for row in of_step:
        lost = ", the service receives the request and does nothing" if row.service == "loses it" else ""
        yield f"| `{row.at}`{lost} | {row.words} | {_allowed(row)} |"
        if row.may_freeze and row.frozen:
            yield f"| `{row.at}`, frozen for longer than the lease | the same | {_allowed(row.when_frozen())} |"
    yield ""


def _allowed(row: Row) -> str:
    """Say what the table allows; of most steps, only that the call ends as if nothing had happened."""
    parts = [f"settled as {_either(row.reasons)}"]
    if row.reasons == ("dropped",):
        return "no request at all, nothing left"
    if row.step == row.kind.value:
        parts.append(f"{_either(tuple(map(str, row.sent)))} past authentication")
        parts.append(f"ledger {_either(row.ledger)}")
    if row.step == "check":
        parts.append(f"{row.lost or 'no'} check lost")
    return ", ".join(parts)


def _either(values: tuple[str, ...]) -> str:
    return " or ".join(values)


if __name__ == "__main__":
    DOCUMENT.write_text(placed(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")

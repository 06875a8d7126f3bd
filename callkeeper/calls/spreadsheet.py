"""CSV for spreadsheets, in which no text from outside, such as a name, is evaluated as a formula."""

import csv
import re
from collections.abc import Iterable
from typing import Final, TextIO

_FORMULA: Final = re.compile('(?:^|(?<=[,;\t\r\n"]))(\\s*)(?=[=+@\uff1d\uff0b\uff0d\uff20-])')
"""Signs with which a formula begins, at the start of a cell or after a separator of some countries."""


class SpreadsheetWriter:
    """Writes rows. A text that would be a formula gets an apostrophe in front of its sign."""

    def __init__(self, file: TextIO, *, line_end: str = "\r\n") -> None:
        self._writer = csv.writer(file, lineterminator=line_end)

    def row(self, values: Iterable[object]) -> None:
        """Write one row; None is an empty cell."""
        self._writer.writerow(["" if value is None else _FORMULA.sub(r"\1'", str(value)) for value in values])

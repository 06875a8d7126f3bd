"""CSV in which no text from outside is a formula."""

from io import StringIO

import pytest

from callkeeper.calls.spreadsheet import SpreadsheetWriter


def written(*values: object) -> str:
    """Return one row."""
    file = StringIO()
    SpreadsheetWriter(file, line_end="\n").row(values)
    return file.getvalue()


@pytest.mark.parametrize("text", ["=1+1", "+1 202 555 0147", "-1", "@SUM(A1)", "\uff1dcmd", "  =1"])
def test_formula_gets_an_apostrophe(text: str) -> None:
    """Whatever a spreadsheet would evaluate stays text, also behind spaces."""
    assert written(text).strip("\n").lstrip('" ').startswith("'")


def test_formula_behind_a_separator_gets_one_too() -> None:
    """In some countries a semicolon or a tab begins a new cell."""
    assert written("a;=1") == "a;'=1\n"
    assert written("a\t=1") == "a\t'=1\n"


def test_other_values_stay_as_they_are() -> None:
    """A number, a name, and nothing at all."""
    assert written(7, "Ada Example", None, "a=b") == "7,Ada Example,,a=b\n"

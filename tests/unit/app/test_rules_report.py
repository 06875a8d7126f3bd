"""The report of what rules did, as it is printed."""

from callkeeper.app.commands.rules import report_tables
from callkeeper.app.terminal import is_visible
from callkeeper.calls.rules.report import report
from callkeeper.calls.trail import Tried
from tests.unit.calls.rules.test_report import decided, recording
from tests.unit.calls.specimens import BOOK


def test_report_has_no_character_that_is_printed_as_an_escape() -> None:
    r"""Commands print a line break within a text as ``\n``, so the report yields each line by itself."""
    free = Tried("s", "reject", "shadow", "shadowed")
    parts = report_tables(report([recording(decided("r", "hold", free))], BOOK.policies))
    lines = [part for part in parts if isinstance(part, str)]
    assert "1 call in which shadow and live disagree:" in lines
    assert all(map(is_visible, lines))

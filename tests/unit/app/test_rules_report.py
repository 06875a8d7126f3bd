"""The report of what rules did, as it is printed."""

import re

import pytest

from callkeeper.app.commands.rules import say_report
from callkeeper.app.terminal import is_visible
from callkeeper.calls.rules.report import report
from callkeeper.calls.trail import Tried
from tests.unit.calls.rules.test_report import decided, recording
from tests.unit.calls.specimens import BOOK


def test_report_has_no_character_that_is_printed_as_an_escape(capsys: pytest.CaptureFixture[str]) -> None:
    r"""Commands print a line break within a text as ``\n``, so the report prints each line by itself."""
    free = Tried("s", "reject", "shadow", "shadowed")
    say_report(report([recording(decided("r", "hold", free))], BOOK.policies))
    lines = capsys.readouterr().out.splitlines()
    assert "1 call in which shadow and live disagree:" in lines
    assert all(map(is_visible, lines))
    assert not any("\\" in line for line in lines)


def test_report_cuts_no_word_in_a_narrow_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 80 columns, its nine columns are whole lines, which the terminal breaks."""
    monkeypatch.setenv("FORCE_COLOR", "1")  # as in a terminal
    monkeypatch.setenv("COLUMNS", "80")
    free = Tried("a rule with a long name", "reject", "shadow", "shadowed")
    say_report(report([recording(decided("another-rule-with-a-long-name", "hold", free))], BOOK.policies))
    words = set(re.sub(r"\x1b\[\d*m", " ", capsys.readouterr().out).split())
    assert {"institution", "disagree", "another-rule-with-a-long-name", "'another-rule-with-a-long-name'"} <= words

"""The changes that modules are tried with, and the file of scores."""

from itertools import islice

import pytest

from tests.mutation.__main__ import FILE, Module, Outcome, _is_worse, modules, written
from tests.mutation.changes import sample

CODE = '''\
"""A module."""

LIMIT = 1


def may(call: int | None, *, log: object) -> bool:
    """Tell."""
    log.info("asked", n=1)
    if call is None:
        return False
    note(call)
    return call > LIMIT
'''


def test_changes_are_of_operators_constants_conditions_and_calls() -> None:
    """Each once; none of annotations, of what is logged, or of how arguments are named."""
    made = [(change.line, change.becomes.replace("= ", "=")) for change in sample(CODE)]
    assert sorted(made) == sorted(
        [
            ("LIMIT = 1", "LIMIT =2"),
            ("LIMIT = 1", "LIMIT =0"),
            ("if call is None:", "if call is not None:"),
            ("return False", "return True"),
            ("note(call)", "pass"),
            ("return call > LIMIT", "return call >=LIMIT"),
            ("return call > LIMIT", "return call <=LIMIT"),
        ]
    )


def test_every_change_is_of_one_line_of_the_module_as_it_was() -> None:
    """No change is left behind in the next one."""
    for change in sample(CODE):
        differ = [line for line in change.code.splitlines() if line not in CODE.splitlines()]
        assert len(differ) == 1


def test_sample_stays_the_same_when_other_lines_move_or_change() -> None:
    """So that two runs of a module can be compared."""
    moved = CODE.replace('"""A module."""\n', '"""A module."""\n\nimport os\n').replace("note(call)", "log(call)")
    chosen = [[change[:2] for change in islice(sample(code), 7)] for code in (CODE, moved)]
    assert [change for change in chosen[0] if change[0] != "note(call)"] == [
        change for change in chosen[1] if change[0] != "log(call)"
    ]


PATH = "workers/move.py"
BEFORE = Module(PATH, ("unit/workers/test_move*.py", "integration/workers"), 3, 4)
KILLED, ALIVE = Outcome(True, "a", "b"), Outcome(False, "if x:", "if not x:")


def test_module_is_worse_if_its_score_falls(capsys: pytest.CaptureFixture[str]) -> None:
    """The changes that survived are named. A module that was never tried cannot be worse, nor one that is gone."""
    assert _is_worse(BEFORE, [KILLED, KILLED, ALIVE, ALIVE])
    assert "if not x:" in capsys.readouterr().out
    assert not _is_worse(BEFORE, [KILLED, KILLED, KILLED, ALIVE])
    assert not _is_worse(BEFORE._replace(killed=0, tried=0), [ALIVE])
    assert not _is_worse(BEFORE, [])
    assert _is_worse(BEFORE, None)


def test_larger_sample_is_compared_by_its_first_changes() -> None:
    """They are those that were recorded: the others say nothing about what got worse."""
    assert not _is_worse(BEFORE, [KILLED, ALIVE, KILLED, KILLED, ALIVE, ALIVE])
    assert _is_worse(BEFORE, [ALIVE, ALIVE, KILLED, KILLED, KILLED, KILLED])


@pytest.mark.parametrize(
    ("changed", "differs"),
    [
        (PATH, True),
        ("tests/unit/workers/test_move_after.py", True),
        ("tests/integration/workers/test_effects.py", True),
        ("tests/unit/workers/test_effects.py", False),
        ("workers/effects.py", False),
    ],
)
def test_module_differs_if_it_or_a_test_of_it_does(changed: str, differs: bool) -> None:
    """Also if the test is gone: that is what the score is for."""
    assert BEFORE.differs([changed, "README.md"]) == differs


def test_file_is_as_it_is_written() -> None:
    """``--write`` changes only what it found."""
    assert FILE.read_text(encoding="utf-8") == written(modules())

"""The changes that the core is tried with, and the file of those that survive."""

import msgspec
import pytest

from tests.mutation.__main__ import FILE, Module, Survivor, _is_worse, modules, written
from tests.mutation.changes import changes
from tests.mutation.lua_changes import changes as lua_changes
from tests.mutation.trial import _is_in_sample

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
    made = [(change.line, change.becomes.replace("= ", "=")) for change in changes(CODE)]
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


SCRIPT = """\
-- Tell whether 1 is true.
local known = redis.call('HMGET', key, 'since', '-1')
if known[1] and not is_late(known[2]) then return 0 end
while wait(5) do
    redis.call('ZADD', due, 'LT', math.max(a, -b), member)
    if known[3] < now then break end
end
return true
"""


def test_changes_of_a_script_are_of_the_same_kinds() -> None:
    """None of comments, of names, or of what only says which value; the last return stays, as it always is noticed."""
    returns, added = (
        "if known[1] and not is_late(known[2]) then return 0 end",
        "redis.call('ZADD', due, 'LT', math.max(a, -b), member)",
    )
    assert {change[:2] for change in lua_changes(SCRIPT)} == {
        (returns, returns.replace("and", "or")),
        (returns, returns.replace("not ", "")),
        (returns, returns.replace("return 0", "do end")),
        (returns, returns.replace("return 0", "return 1")),
        ("while wait(5) do", "while not (wait(5)) do"),
        ("while wait(5) do", "while wait(6) do"),
        (added, "do end"),
        (added, added.replace("LT", "GT")),
        (added, added.replace("max", "min")),
        (added, added.replace("-b", "b")),
        ("if known[3] < now then break end", "if known[3] <= now then break end"),
        ("if known[3] < now then break end", "if known[3] >= now then break end"),
        ("if known[3] < now then break end", "if known[3] < now then do end end"),
        ("return true", "return false"),
    }


def test_sample_depends_on_the_text_of_a_change_only() -> None:
    """So that it stays the same when lines move."""
    moved = CODE.replace('"""A module."""\n', '"""A module."""\n\nimport os\n')
    chosen = [{change[:2] for change in changes(code) if _is_in_sample(change, 2)} for code in (CODE, moved)]
    assert chosen[0] == chosen[1]
    assert 0 < len(chosen[0]) < 7


MODULE = Module("workers/move.py", ("tests/unit/workers/test_move.py",), 4)
OUTCOMES = [("killed", "a", "b"), ("killed", "a", "c"), ("survived", "d", "e"), ("broken", "f", "g")]


def test_score_leaves_out_what_no_test_could_notice() -> None:
    """Changes with a reason do not count, nor do those with which a module cannot be imported."""
    found = MODULE.found(OUTCOMES)
    assert (found.tried, found.killed) == (3, 2)
    assert found.score == pytest.approx(200 / 3)
    reasoned = msgspec.structs.replace(found, survivors=(Survivor("d", "e", "no matter"),))
    assert reasoned.score == 100
    assert reasoned.found(OUTCOMES) == reasoned, "a reason stays with its change"


def test_module_is_worse_if_its_score_falls(capsys: pytest.CaptureFixture[str]) -> None:
    """Its new survivors are named. A module that was never tried cannot be worse."""
    before, after = MODULE.found(OUTCOMES), MODULE.found([*OUTCOMES, ("survived", "if x:", "if not x:")])
    assert _is_worse(before, after)
    assert "if not x:" in capsys.readouterr().out
    assert not _is_worse(before, before)
    assert not _is_worse(after, before)
    assert not _is_worse(MODULE, after)
    assert _is_worse(before, None)


def test_file_is_as_it_is_written() -> None:
    """``make mutants ARGS=--write`` changes only what it found."""
    assert FILE.read_text(encoding="utf-8") == written(modules())

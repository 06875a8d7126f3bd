"""Each Lua script is called by exactly one typed Python function."""

import ast
import re
from collections import Counter
from pathlib import Path

from callkeeper.calls.record import CHECK_LIMIT
from callkeeper.calls.store.keys import CHANGES_KEPT, MOST_TOMBSTONES

ROOT = Path(__file__).parents[4]
LUA = ROOT / "callkeeper/calls/lua"


def _script(call: ast.Call) -> str | None:
    """Return which script a call names: of `Scripts`, of the token (``_run``), or one that is loaded alone."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    named = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
    if not named:
        return None
    return {"call": named[0], "Script": named[-1], "_run": f"token_{named[0]}"}.get(name)


def test_every_script_has_one_python_function() -> None:
    """As many calls as there are scripts, one for each."""
    files = (path for top in ("callkeeper", "workers") for path in (ROOT / top).rglob("*.py"))
    texts = filter(re.compile(r"\b(call|Script|_run)\(").search, (path.read_text() for path in files))
    calls = (node for text in texts for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    scripts = {path.stem for path in LUA.glob("*.lua")}
    assert Counter(name for name in map(_script, calls) if name in scripts) == Counter(scripts)


SCRIPTS = {path.name: re.sub(r"--.*", "", path.read_text()) for path in LUA.rglob("*.lua")}


LONGEST = 125


def test_lines_of_scripts_are_no_longer_than_those_of_modules() -> None:
    """The linter does not read Lua."""
    lines = [line for path in LUA.rglob("*.lua") for line in path.read_text().splitlines()]
    assert [line for line in lines if len(line) > LONGEST] == []


def test_no_script_repeats_a_limit() -> None:
    """The limits that Python and the scripts share are Python's constants: no script writes the number."""
    numbers = rf"\b({CHECK_LIMIT}|{MOST_TOMBSTONES}|{CHANGES_KEPT})\b"
    assert {name for name, text in SCRIPTS.items() if re.search(numbers, text)} == set()


def test_one_lua_function_follows_tombstones() -> None:
    """A chain of tombstones is followed in one loop, whoever asks for its end."""
    assert sum(text.count("MOST_TOMBSTONES") for text in SCRIPTS.values()) == 1

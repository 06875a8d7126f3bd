"""A script's first lines name what it takes, and every caller passes just that."""

import ast
import re
from pathlib import Path
from typing import get_args

import pytest
from lupa import luajit21

from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.script import Script, ScriptName

ROOT = Path(__file__).parents[4]
OPTIONS = {"rest", "replicated", "confirmed", "within_s"}
KEYS = Keys("ck")
LUA = ROOT / "callkeeper/calls/lua"
CALLED = re.compile(r"(?<![.:\w])(\w+)\(")
DECLARED = re.compile(r"\b(?:local|for) ([\w, ]+)|(?<=\()([\w, ]+)(?=\))")
WORDS = {"function", "if", "and", "or", "not", "return"}
BUILT_IN = {"ipairs", "pairs", "tonumber", "tostring", "pcall", "type", "unpack"}


def passed() -> list[tuple[str, str, set[str]]]:
    """Return each place that calls a script: file and line, the script, what it passes by name."""
    found = []
    for path in sorted([*ROOT.glob("callkeeper/**/*.py"), *ROOT.glob("workers/*.py")]):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if ".call(" in text else ():
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "call"):
                continue
            first = node.args[0] if node.args else None
            if isinstance(first, ast.Constant) and first.value in get_args(ScriptName):
                named = {str(keyword.arg) for keyword in node.keywords}
                found.append((f"{path.name}:{node.lineno}", str(first.value), named - OPTIONS))
    return found


def test_every_caller_passes_what_the_script_names() -> None:
    """A name that is wrong or missing is found without running the place that has it."""
    places = passed()
    assert {script for _, script, _ in places} == set(get_args(ScriptName)) - {"add_figures", "pulse"}
    for where, script, named in places:
        try:
            Script(KEYS, script).arguments("", dict.fromkeys(named, "x"))
        except TypeError as problem:
            pytest.fail(f"{where}: {problem}")


def test_arguments_are_in_the_order_of_the_first_lines() -> None:
    """Callers need not know positions; time, prefix, the keys of a member and keys with a fixed name are filled in."""
    keys, args = Script(KEYS, "expire_archived").arguments(
        7,
        {
            "call_item_key": "i",
            "call_trail_key": "t",
            "call_attention_key": "a",
            "note_count": 1,
            "kept_s": 60,
            "nonce": "n",
            "member": "c:cu-1:v-1",
        },
        ["id", b"note"],
    )
    assert keys == ["ck:2:item:c:cu-1:v-1", "ck:2:inbox:c:cu-1:v-1", "ck:2:due", "ck:2:attention", "i", "t", "a"]
    assert args == [7, "c:cu-1:v-1", "n", 60, 1, "id", b"note"]


def test_scripts_take_the_time_from_redis_in_whole_milliseconds() -> None:
    """All due times and leases are counted from it. Redis tells seconds, and microseconds of the present one."""
    told = "clock, redis = '', {call = function() return {'1790000000', '998500'} end}"
    prelude = (LUA / "parts/prelude.lua").read_text(encoding="utf-8")
    assert luajit21.LuaRuntime().execute(f"{told}\n{prelude}\nreturn now_ms()") == 1_790_000_000_998


@pytest.mark.parametrize(
    ("given", "rest"),
    [({}, ()), ({"process": "p", "leads_ms": 1, "wanted": 1, "more": 1}, ()), ({"process": "p", "leads_ms": 1}, (1,))],
    ids=["missing", "unknown", "repeated"],
)
def test_arguments_that_a_script_does_not_name_are_refused(given: dict[str, str | int], rest: tuple[int, ...]) -> None:
    """The error names the script, what is missing and what it does not know."""
    with pytest.raises(TypeError, match=r"lead\.lua: missing"):
        Script(KEYS, "lead").arguments("", given, rest)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("-- ARGV: clock\nreturn 1", "does not name its KEYS"),
        ("-- KEYS: due\n-- ARGV: the time\nreturn 1", "does not name its ARGV"),
        ("-- KEYS: due\n-- ARGV: clock, due_key\nreturn 1", "names something twice"),
        ("-- KEYS: due\n-- ARGV: clock, epoch\nreturn 1", "names something twice"),
    ],
    ids=["no keys", "no names", "twice", "hides a function"],
)
def test_script_without_readable_names_is_not_loaded(text: str, problem: str, tmp_path: Path) -> None:
    """Such a script stops the start: a local that hides a function of the prelude would break it later."""
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts/prelude.lua").write_text("local function epoch() return 1 end\n")
    (tmp_path / "wrong.lua").write_text(text)
    with pytest.raises(ValueError, match=problem):
        Script(KEYS, "wrong", folder=tmp_path)


@pytest.mark.parametrize("script", sorted(path.stem for path in LUA.glob("*.lua")))
def test_script_calls_only_what_it_and_its_parts_declare(script: str) -> None:
    """A part that is not named would be missed only when the line that needs it runs."""
    source = re.sub(r"--.*|'[^']*'", "", Script(KEYS, script).source)
    declared = set(re.findall(r"\w+", " ".join(" ".join(groups) for groups in DECLARED.findall(source))))
    assert set(CALLED.findall(source)) - declared - WORDS - BUILT_IN == set()

"""Where things stand in a TOML file."""

import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from callkeeper.calls.rules.toml_reader import Lines, Path
from tests.unit.calls.rules.specimens import SOUND

EVERYTHING = '''\
# a comment with [brackets] and "quotes"
top = 1
"quoted key" = "a # no comment"

[table]   # after a header
a.b.c = [1,
  2, # two
  [3, 4],
]
text = """
[[rule]]
not = "a key"
"""
raw = \'\'\'it's
raw\'\'\'
inline = { x = 1, "y z" = [ "]", '}' ], deep = { w = true } }

[[rule]]
when = { verified = true }

[[rule]]
[rule.when]
green = true

[[rule.more]]
k = 1
[[rule.more]]
k = 2

[[rule]]
when.red = 1979-05-27T07:32:00Z
'''


def test_lines_find_every_spelling() -> None:
    """Tables, lists of tables, dotted keys, inline tables, lists and texts over many lines: each place has its line."""
    lines = Lines(EVERYTHING)
    places: dict[Path, str] = {
        ("top",): "top",
        ("quoted key",): '"quoted',
        ("table",): "[table]",
        ("table", "a", "b", "c"): "a.b.c",
        ("table", "a", "b", "c", 1): "2, # two",
        ("table", "a", "b", "c", 2, 1): "[3, 4]",
        ("table", "text"): "text =",
        ("table", "inline", "deep", "w"): "inline",
        ("table", "inline", "y z", 1): "inline",
        ("rule", 0, "when", "verified"): "when = { verified",
        ("rule", 1, "when"): "[rule.when]",
        ("rule", 1, "when", "green"): "green",
        ("rule", 1, "more", 1, "k"): "k = 2",
        ("rule", 2, "when", "red"): "when.red",
    }
    for path, marker in places.items():
        assert lines.find(*path) == EVERYTHING[: EVERYTHING.index(marker)].count("\n") + 1, path


def test_lines_of_what_is_not_written_are_those_of_what_holds_it() -> None:
    """A missing key is told at its table, a missing table at the first line."""
    lines = Lines(SOUND)
    assert lines.find("checks", "nothing") == lines.find("checks") == 1
    assert lines.find("nowhere", "at", "all") == 1
    assert lines.find("rule", 1, "then") == lines.find("rule", 1) + 2


keys = st.from_regex(r"[A-Za-z0-9_-]{1,8}", fullmatch=True)
values = st.recursive(
    st.one_of(
        st.booleans().map(lambda value: str(value).lower()),
        st.integers(-5, 5).map(str),
        st.sampled_from(["'it # is ]'", '"a \\" b }"', "'''\ntwo\nlines'''", '"""\n\\"x\n"""', "1e3", "inf"]),
    ),
    lambda inner: st.lists(inner, max_size=3).flatmap(
        lambda items: st.sampled_from([", ", ",\n  ", " , # x\n "]).map(lambda comma: f"[{comma.join(items)}]")
    ),
    max_leaves=5,
)
documents = st.lists(
    st.tuples(keys, st.lists(st.tuples(keys, values), max_size=3, unique_by=lambda pair: pair[0])), max_size=4
)


@given(documents)
def test_lines_know_every_place_that_the_parser_knows(tables: list[tuple[str, list[tuple[str, str]]]]) -> None:
    """For any file the parser takes, every key and element has a line, and that line holds the key."""
    text = "\n".join(
        f"[[{name}-list]]\n" + "".join(f"{key} = {value}\n" for key, value in pairs) for name, pairs in tables
    )
    known = dict(Lines(text))
    rows = text.split("\n")
    for path in _places(tomllib.loads(text)):
        assert path in known
        if isinstance(path[-1], str):
            assert path[-1] in rows[known[path] - 1]


def _places(value: Any, path: Path = ()) -> list[Path]:
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = [path] if path else []
    for key, child in children:
        found += _places(child, (*path, key))
    return found

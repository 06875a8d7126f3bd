"""README.md and docs/go-live.md: what they show is what `make readme` tries."""

from pathlib import Path

import pytest

from tests.readme.document import Command, commands
from tests.readme.plan import PAGES, Where, faults, typed

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_readme_shows_exactly_the_commands_that_are_tried() -> None:
    """No command is shown that nobody tries, and none is tried that is no longer shown."""
    shown = [each for page in PAGES for each in commands((ROOT / page).read_text(encoding="utf-8"))]
    assert faults(shown) == []


def test_new_command_in_the_readme_is_a_fault() -> None:
    """A command that the plan does not know is named with its line, in a sentence or in a block."""
    shown = commands(f"{README}\nTry `callkeeper frobnicate --now`.\n\n```sh\nmake coffee\n```\n")
    unknown = [fault for fault in faults(shown) if "nobody tries" in fault]
    assert [fault.partition("`")[2] for fault in unknown] == ["callkeeper frobnicate --now`", "make coffee`"]


def test_commands_that_are_left_to_ci_are_its_steps() -> None:
    """`make readme` leaves `make test` to CI, which runs it once."""
    steps = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    left = typed(commands(README), Where.CI)
    assert sorted(step.strip() for step in steps if step.strip() in left) == sorted(left)


def test_three_terminals_are_told_in_order() -> None:
    """Redis comes first, then the sandbox, then the processes that need both."""
    assert [text.split()[0] for text in typed(commands(README), Where.THREE)] == [
        "redis-server",
        "callkeeper",
        "honcho",
    ]


@pytest.mark.parametrize(
    ("markdown", "expected"),
    [
        pytest.param(
            "```sh\nmake run\n\nmake test\n```", [Command("make run", 2), Command("make test", 4)], id="block"
        ),
        pytest.param("```text\nmake run\n```", [], id="output"),
        pytest.param("Type `make run`, or `make`.", [Command("make run", 1)], id="sentence"),
        pytest.param("Type `callkeeper\n  doctor`.", [Command("callkeeper doctor", 1)], id="over two lines"),
        pytest.param("| `callkeeper rules check\\|test` |", [Command("callkeeper rules check|test", 1)], id="table"),
        pytest.param("Set `PORT`; see `CALLKEEPER_RULES=demo`.", [], id="no program"),
        pytest.param("Text:\n\n    make run\n    its output\n", [Command("make run", 3)], id="indented"),
    ],
)
def test_commands_of_a_document(markdown: str, expected: list[Command]) -> None:
    """Each line of an sh block is a command, and code in a sentence that begins with a program."""
    assert commands(markdown) == expected


def test_block_of_unknown_kind_is_refused() -> None:
    """A block must say whether its lines are commands, so that none is overlooked."""
    with pytest.raises(ValueError, match="line 1: a block must say sh or text"):
        commands("```\nmake run\n```")

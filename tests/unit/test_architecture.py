"""ARCHITECTURE.md: its files exist, and it answers where things happen."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
QUESTIONS = 30


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([a-z_/]+/(?:[a-z_]+\.(?:py|lua))?)`", TEXT))))
def test_every_file_named_exists(name: str) -> None:
    """A path that the map names leads to a file or a folder."""
    assert (ROOT / name).exists()


def test_every_question_of_a_newcomer_is_answered_with_a_file() -> None:
    """Each row of the table of questions names the file to open."""
    _, _, rest = TEXT.partition("## Where is ...?")
    rows = re.findall(r"^\| ([a-z][^|]+) \| ([^|]+) \|$", rest.partition("\n## ")[0], re.MULTILINE)
    answers = dict(rows[1:])
    assert len(answers) == QUESTIONS
    assert [question for question, answer in answers.items() if not re.search(r"`[a-z_/]+\.(py|lua)`", answer)] == []


def test_every_package_has_a_row() -> None:
    """Whoever adds a package says what it is."""
    packages = {
        f"{folder.parent.relative_to(ROOT)}/"
        for top in ("reseller", "calls", "receiver", "workers", "desk", "callkeeper")
        for folder in (ROOT / top).rglob("__init__.py")
    }
    assert {name for name in packages if f"`{name}`" not in TEXT} <= {"callkeeper/commands/"}

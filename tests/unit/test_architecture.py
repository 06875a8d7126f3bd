"""ARCHITECTURE.md: its files exist, and it answers where things happen."""

import re
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
PRODUCT = ("receiver", "workers", "callkeeper")


def test_every_file_named_exists() -> None:
    """A path that the map names leads to a file or a folder."""
    named = set(re.findall(r"`([a-z_/]+/(?:[a-z_]+\.(?:py|lua))?)`", TEXT))
    assert len(named) > 50
    assert {name for name in named if not (ROOT / name).exists()} == set()


def test_every_question_of_a_newcomer_is_answered_with_a_file() -> None:
    """Each item of the list of questions names the file to open."""
    _, _, rest = TEXT.partition("## Where is ...?")
    answers = dict(re.findall(r"^- ([a-z][^:]+): (.+(?:\n  .+)*)$", rest.partition("\n## ")[0], re.MULTILINE))
    assert answers
    assert [question for question, answer in answers.items() if not re.search(r"`[a-z_/]+\.(py|lua)`", answer)] == []


def test_every_package_has_a_row() -> None:
    """Whoever adds a package says what it is."""
    packages = {
        f"{folder.parent.relative_to(ROOT)}/" for top in PRODUCT for folder in (ROOT / top).rglob("__init__.py")
    }
    assert {name for name in packages if f"`{name}`" not in TEXT} <= {"callkeeper/", "callkeeper/app/commands/"}


def test_no_class_name_has_two_meanings() -> None:
    """One name, one class."""
    texts = (path.read_text(encoding="utf-8") for top in PRODUCT for path in (ROOT / top).rglob("*.py"))
    names = Counter(name for text in texts for name in re.findall(r"^class ([A-Za-z]\w*)", text, re.MULTILINE))
    assert {name for name, n in names.items() if n > 1} == set()


def test_no_import_is_part_of_a_circle() -> None:
    """Every module can be understood with the modules below it: an order of all of them exists."""
    graph = grimp.build_graph("receiver", "workers", "callkeeper", "callkeeper_sandbox")
    below = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(list(TopologicalSorter(below).static_order())) == len(graph.modules) > 200

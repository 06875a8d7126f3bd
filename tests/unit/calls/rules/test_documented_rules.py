"""The rules files of the documentation enroll nobody whom the shipped cases do not enroll."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from callkeeper.calls.rules.book import Outcome, RuleBook
from callkeeper.calls.rules.cases import Case, load_cases
from callkeeper.calls.rules.file import parse_rules
from callkeeper.calls.rules.matching import judge
from callkeeper.calls.rules.replay import with_colours

ROOT = Path(__file__).parents[4]
GUIDE = (ROOT / "docs" / "your-own-rulebook.md").read_text(encoding="utf-8")
FILES = re.findall(r"^`rules\.toml`:\n\n```toml\n(.*?)```", GUIDE, re.DOTALL | re.MULTILINE)
FOLDER = ROOT / "docs" / "examples" / "rulebook"
EXAMPLE = (FOLDER / "rules.toml").read_text(encoding="utf-8")
SHIPPED = load_cases(ROOT / "callkeeper" / "calls" / "rulebooks" / "default.cases.toml").cases
WHEN_ALL_ARE_IN_FORCE = datetime(2027, 6, 1, tzinfo=UTC)


def live(text: str) -> RuleBook:
    """Return the rules of a file as they are once no rule is in shadow."""
    return parse_rules(text.replace('stage = "shadow"\n', "").encode(), name="rules.toml", folder=FOLDER)


@pytest.mark.parametrize("case", [case for case in SHIPPED if case.expect is not Outcome.ENROLL], ids=lambda c: c.name)
@pytest.mark.parametrize("text", [*FILES, EXAMPLE], ids=["smallest", "first", "example"])
def test_documented_rules_enroll_nobody_whom_the_shipped_rules_do_not(text: str, case: Case) -> None:
    """Whoever copies them and makes them live gives away no protection that the shipped rules have."""
    book = live(text)
    facts = replace(with_colours(case.facts, book.policies), at=WHEN_ALL_ARE_IN_FORCE)
    assert judge(facts, book, "").outcome is not Outcome.ENROLL


def test_documented_rules_have_no_oversight() -> None:
    """What ``rules check`` warns of does not stand in the guide as a model."""
    assert live(FILES[1]).oversights == []

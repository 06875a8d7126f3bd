"""docs/rules.md is printed from the code and says what the code does."""

from pathlib import Path

from callkeeper.app.documents import EXAMPLES, FORM_MEANINGS, MEANINGS, rules_document
from callkeeper.calls.facts import FACTS
from callkeeper.calls.law import LAW
from callkeeper.calls.rules.condition_parsing import forms_of
from callkeeper.calls.rules.file import KEYS

DOCUMENT = Path(__file__).parents[2] / "docs" / "rules.md"


def test_document_is_the_one_that_the_code_prints() -> None:
    """``make generate`` was run after the last change."""
    assert DOCUMENT.read_text(encoding="utf-8") == rules_document()


def test_document_holds_every_key_fact_and_article() -> None:
    """Nothing of the file, the facts or the law is left out."""
    assert {table: set(keys) for table, keys in MEANINGS.items()} == {table: set(keys) for table, keys in KEYS.items()}
    text = rules_document()
    assert all(f"- `{name}` (" in text for name in FACTS)
    assert all(f"- `{article.name}` forbids" in text for article in LAW)
    assert all(f"**{what}**" in text for what, _ in EXAMPLES)
    assert {form for name in FACTS for form in forms_of(name)} == set(FORM_MEANINGS)


def test_document_explains_three_calls_of_a_real_run() -> None:
    """Green, enrolled by passcode, held for two candidates: each fits on one screen."""
    text = rules_document()
    examples = text[text.index("## Calls explained") :].split("### ")[1:]
    assert [example.split("\n")[0] for example in examples] == [
        "Green",
        "Enrolled by passcode",
        "Held: two candidates",
    ]
    for example in examples:
        assert 8 <= len(example.partition("```text\n")[2].partition("```")[0].splitlines()) <= 45

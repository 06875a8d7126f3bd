"""The list of assumptions: marks in the code, the document, and when an answer counts."""

import re
from pathlib import Path

import pytest

from callkeeper.calls.assumptions import assumptions
from callkeeper.calls.survey import Sight, Survey, contradictions

ROOT = Path(__file__).parents[2]
PACKAGES = ("receiver", "workers", "callkeeper")
MARK = re.compile(r"Assumed\s+\(((?:`[a-z0-9-]+`(?:, )?)+)\)")
SEEN = re.compile(r"""(?:Shown|\.see)\(\s*"([a-z0-9-]+)",\s*(?:f?"([a-z0-9-]+))?""")


def _sources() -> str:
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    return "\n".join(path.read_text(encoding="utf-8") for path in files)


def test_every_assumption_of_the_list_has_its_mark_in_the_code() -> None:
    """Who changes the code that relies on it sees that an answer can contradict it; no mark lacks an identifier."""
    text = _sources()
    marked = {name for found in MARK.findall(text) for name in re.findall(r"`([a-z0-9-]+)`", found)}
    assert assumptions().keys() - marked == set()
    assert "Assumed:" not in text


def test_observers_name_answers_of_the_list() -> None:
    """What the code says that it saw is in the list: a misspelt name would be shown nowhere."""
    named = SEEN.findall(_sources())
    assert len(named) > 15
    answers = {(one.id, answer.name) for one in assumptions().values() for answer in one.answers}
    known = {(id_, name) for id_, whole in answers for name in ("", whole, *(whole[:n] for n in range(len(whole))))}
    assert [pair for pair in named if pair not in known] == []


def test_document_names_every_assumption() -> None:
    """docs/assumptions.md says of each what contradicts it and what happens then."""
    text = (ROOT / "docs/assumptions.md").read_text(encoding="utf-8")
    flat = " ".join(text.split())
    for one in assumptions().values():
        assert f"`{one.id}`" in text, one.id
        assert [answer.words for answer in one.answers if " ".join(answer.words.split()) not in flat] == [], one.id


@pytest.mark.parametrize(("count", "expected"), [(2, []), (3, ["entry-without-id"])])
def test_answer_that_may_be_an_accident_counts_from_three_on(count: int, expected: list[str]) -> None:
    """Two odd entries in a life prove nothing."""
    survey = Survey({"queue-entry-usable": {"entry-without-id": Sight(n=count, first=1000.0, last=2000.0)}})
    assert [answer.name for answer, _ in survey.contradicting(assumptions()["queue-entry-usable"])] == expected


def test_contradiction_is_told_until_it_is_known_at_its_institution_or_everywhere() -> None:
    """Who knows of it is not told again; what is seen first at another institution is."""
    sight = Sight(n=3, first=1000.0, last=9000.0, at={"cu-1": 1000.0, "cu-2": 7000.0})
    places = {"queue-entry-usable": {"entry-without-id": sight}}

    def told(**known_ms: float) -> list[str]:
        known = {key.replace("_", "-").replace("all", ""): at for key, at in known_ms.items()}
        return [one.institution_key for one in contradictions(Survey(places, known))]

    assert told() == ["cu-1", "cu-2"]
    assert told(cu_1=5000.0) == ["cu-2"]
    assert told(all=5000.0) == ["cu-2"]
    assert told(all=8000.0) == []


def test_stored_survey_of_another_release_is_read_as_far_as_it_is_known() -> None:
    """Unknown assumptions and answers are told to nobody, and unreadable values are left out."""
    sight = b'{"n":9,"first":1.0,"last":2.0,"at":{},"places":0,"newer":1}'
    survey = Survey.parse(
        {b"token-life|usual": sight, b"newer|usual": sight, b"queue-has-calls|x": b"?", b"known|": b"x"}
    )
    assert list(contradictions(survey)) == []

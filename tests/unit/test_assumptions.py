"""The list of assumptions: what the code assumes of the service, with its marks, tests, documents and variants."""

import re
from collections import Counter
from pathlib import Path

import pytest

from callkeeper.app.assumptions_documents import assumptions_document, survey_document
from callkeeper.calls.assumptions import SeenBy, assumptions, is_known
from callkeeper.calls.survey import Sight, Survey, SurveyVerdict, contradictions, exported, rows_of
from callkeeper_sandbox.service.variants import VARIANTS

ROOT = Path(__file__).parents[2]
PACKAGES = ("receiver", "workers", "callkeeper")
MARK = re.compile(r"Assumed\s+\(((?:`[a-z0-9-]+`(?:, )?)+)\)")
SEEN = re.compile(r"""(?:Shown|_tell|\.see)\(\s*"([a-z0-9-]+)"(?:,\s*"([a-z0-9-]+)")?""")


def _sources() -> dict[str, str]:
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in files}


def test_every_mark_is_listed_and_every_listed_place_has_its_mark() -> None:
    """A new mark cannot be forgotten in the list, nor a listed assumption in the code; no mark lacks an identifier."""
    marks = {
        (file, name)
        for file, text in _sources().items()
        for found in MARK.findall(text)
        for name in re.findall(r"`([a-z0-9-]+)`", found)
    }
    assert marks == {(file, one.id) for one in assumptions().values() for file in one.where}
    assert [file for file, text in _sources().items() if "Assumed:" in text] == []


def test_every_variant_of_the_sandbox_is_an_answer_to_one_assumption() -> None:
    """So that a survey can name each, and says which assumption it concerns."""
    names = Counter(each.name for one in assumptions().values() for each in one.answers if each.variant)
    assert names.keys() == VARIANTS.keys()
    assert [name for name, count in names.items() if count > 1] == []


def test_observers_name_answers_of_the_list() -> None:
    """What the code says that it saw is in the list: a misspelt name would be shown nowhere."""
    named = [pair for text in _sources().values() for pair in SEEN.findall(text)]
    assert len(named) > 60
    assert [pair for pair in named if not is_known(pair[0], pair[1] or "usual")] == []


def test_every_assumption_has_a_test_and_a_heading_of_the_document() -> None:
    """Each names a file of tests that exists, and each that is about the service a heading."""
    listed = assumptions().values()
    assert [one.id for one in listed if not (ROOT / one.test).is_file()] == []
    assert [one.id for one in listed if not one.spec] == ["private-host"]
    assert [one.id for one in listed if one.seen_by() is SeenBy.NOTHING and not one.never] == []


def test_documents_are_made_from_the_list() -> None:
    """docs/assumptions.md and docs/survey.md are never older than the list."""
    assert (ROOT / "docs/assumptions.md").read_text(encoding="utf-8") == assumptions_document(), "make generate"
    assert (ROOT / "docs/survey.md").read_text(encoding="utf-8") == survey_document(), "make generate"


def seen(**sights: int) -> Survey:
    """Return a survey of answers about limits, and how often each was seen."""
    names = {name.replace("_", "-"): Sight(n=n, first=1000.0, last=2000.0) for name, n in sights.items()}
    return Survey({"busy-is-of-institution": names, "queue-entry-usable": names, "push-delivery": names})


def verdict(survey: Survey, id_: str) -> SurveyVerdict:
    """Return the verdict about one assumption."""
    return next(row.verdict for row in rows_of(survey) if row.assumption.id == id_)


@pytest.mark.parametrize(("count", "expected"), [(2, SurveyVerdict.NOT_SEEN), (3, SurveyVerdict.CONTRADICTED)])
def test_answer_that_may_be_an_accident_counts_from_three_on(count: int, expected: SurveyVerdict) -> None:
    """Two odd entries in a life prove nothing."""
    assert verdict(seen(entry_without_id=count), "queue-entry-usable") is expected


def test_limit_does_not_count_if_429_comes_without_one() -> None:
    """A few 429 look like a limit, until they come although fewer requests were answered."""
    assert seen(limit_5=4).named() == ["limit-5"]
    assert seen(limit_5=4, busy_all=1).named() == ["busy-all"]


def test_pushes_are_lost_only_if_none_ever_came() -> None:
    """A push that is lost now and then is normal: there is no retry."""
    assert seen(events_lost=5).named() == ["events-lost"]
    assert seen(events_lost=5, usual=1).named() == []


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
    """Unknown assumptions and answers are kept out of the table, and unreadable values are left out."""
    sight = b'{"n":2,"first":1.0,"last":2.0,"at":{},"places":0,"newer":1}'
    survey = Survey.parse(
        {b"token-life|usual": sight, b"newer|usual": sight, b"token-life|other": b"?", b"known|": b"x"}
    )
    assert verdict(survey, "token-life") is SurveyVerdict.HOLDS
    assert "newer" not in exported(survey)

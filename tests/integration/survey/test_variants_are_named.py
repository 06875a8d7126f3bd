"""The survey of traffic in virtual time: it names the variant that the service has, and contradicts nothing without one.

``python -m tests.survey_traffic all`` prints the whole table.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from redis.asyncio import Redis

from callkeeper.calls.assumptions import SeenBy, variants
from callkeeper.calls.survey import SurveyVerdict, exported, rows_of
from callkeeper_sandbox.service.access import Credentials
from callkeeper_sandbox.service.likeness import load_likeness
from tests.survey_traffic import Traffic, surveyed

WRONG_CREDENTIALS = ("login-refused-401", "login-refused-400", "login-refused-500")
"""They show only if a login is refused."""

TEN_MINUTES = 3
"""So many waves of traffic take ten minutes and more."""


def _each() -> Iterator[str]:
    for name, (one, answer) in variants().items():
        if one.seen_by(answer) is not SeenBy.NOTHING and name not in WRONG_CREDENTIALS:
            yield name


@pytest.mark.night
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", list(_each()))
async def test_survey_names_the_variant_and_no_other(redis: Redis, name: str) -> None:
    """With one variant, traffic and the free questions show that one; it is contradicted only as the list says."""
    survey = await surveyed([name], redis)
    one, answer = variants()[name]
    assert survey.named() == [name]
    row = next(row for row in rows_of(survey) if row.assumption is one)
    assert row.verdict is (SurveyVerdict.HOLDS if answer.holds else SurveyVerdict.CONTRADICTED)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("waves", [1, pytest.param(TEN_MINUTES, marks=pytest.mark.night)])
async def test_usual_service_contradicts_nothing(redis: Redis, waves: int) -> None:
    """With the usual answers no variant is named and nothing is contradicted; ten minutes of it at night."""
    survey = await surveyed([], redis, waves)
    assert survey.named() == []
    assert [row.assumption.id for row in rows_of(survey) if row.verdict is SurveyVerdict.CONTRADICTED] == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("seen", "waves"),
    [
        (("page-capped", "numbers-e164", "unenrolled-silently"), 1),
        pytest.param(("page-capped", "numbers-e164", "list-items"), 1, marks=pytest.mark.night),
        pytest.param(("record-nested", "dates-offset", "metadata-null"), TEN_MINUTES, marks=pytest.mark.night),
        pytest.param(
            ("list-bare", "person-prefilled", "refused-with-400", "ids-capital"), TEN_MINUTES, marks=pytest.mark.night
        ),
    ],
    ids=str,
)
async def test_sandbox_like_the_service_gives_the_same_survey(
    redis: Redis, tmp_path: Path, seen: Sequence[str], waves: int
) -> None:
    """What a survey exports makes another sandbox answer as the first did: the second survey names the same variants.

    For every change two variants of requests and one of effects, which traffic must contain.
    """
    first = await surveyed(seen, redis, waves)
    assert sorted(first.named()) == sorted(seen)
    file = tmp_path / "service.toml"
    file.write_text(exported(first), encoding="utf-8")
    second = await surveyed(load_likeness(file), redis, waves)
    verdicts = [[(row.assumption.id, row.verdict) for row in rows_of(survey)] for survey in (first, second)]
    assert (second.named(), verdicts[1]) == (first.named(), verdicts[0])


@pytest.mark.parametrize("name", WRONG_CREDENTIALS)
async def test_survey_names_how_a_login_is_refused(redis: Redis, name: str) -> None:
    """Wrong credentials in the settings show it; no question asks for it, because refusals may lock the account."""
    await redis.flushdb()
    traffic = Traffic([name], redis, credentials=Credentials(password="wrong"))
    async with traffic.stage.client, traffic.stage.sandbox.client:
        await traffic.rig.run(5)
        assert (await traffic.survey()).named() == [name]


def test_table_names_every_variant_with_its_observer_or_the_reason_that_there_is_none() -> None:
    """What no traffic and no question can show is known by name, so that nobody waits for it."""
    unseen = {name for name, (one, answer) in variants().items() if one.seen_by(answer) is SeenBy.NOTHING}
    assert unseen == {
        *("addition-needs-key", "addition-makes-key", "problem-empty", "problem-errors-only"),
        *("update-clears", "update-makes-empty", "login-as-bare", "login-as-without-actions"),
    }

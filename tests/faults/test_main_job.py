"""Under every variant of the sandbox calls are found, assigned, checked, enrolled, rejected and settled."""

import os
import re
from pathlib import Path

import pytest
from redis.asyncio import Redis

from callkeeper_sandbox.service.variants import VARIANTS, choose
from tests.covering import covering_sets
from tests.main_job import NOT_KEPT, may_lose, not_kept

SETS = covering_sets()
DOCUMENT = Path(__file__).parents[2] / "docs/guarantees.md"
OFTEN = SETS[:4]
"""The sets that contain most pairs of variants. They run for every change; all sets would take minutes."""

CHOSEN = SETS if os.environ.get("TEST_MODEL") == "nightly" else OFTEN

ALONE = [
    pytest.param(name, id=name or "usual", marks=pytest.mark.night if any(name in names for names in OFTEN) else ())
    for name in ("", *VARIANTS)
]
"""A variant that is in one of those sets runs alone only at night."""


@pytest.mark.parametrize("name", ALONE)
async def test_main_job_under_a_variant(name: str, redis: Redis) -> None:
    """Under each variant every promise is kept, except those listed in `NOT_KEPT`."""
    names = [name] if name else []
    assert set(await not_kept(names, redis)) <= set(NOT_KEPT.get(name, ()))


@pytest.mark.night
async def test_main_job_with_the_limit_of_the_service_set(redis: Redis) -> None:
    """With the limit configured, 5 requests per second are enough for a dozen calls at once."""
    assert not await not_kept(["limit-5"], redis, rps=5.0)


@pytest.mark.parametrize("names", CHOSEN, ids=lambda names: f"{names[0]} and {len(names) - 1} more")
async def test_main_job_under_many_variants(names: list[str], redis: Redis) -> None:
    """A promise that is kept under each variant of a set is kept under all of them together."""
    assert set(await not_kept(names, redis)) <= may_lose(names)


def test_every_variant_is_in_a_set() -> None:
    """The sandbox accepts each set of variants, and every variant is in one of them."""
    for names in SETS:
        choose(names)
    assert {name for names in SETS for name in names} == set(VARIANTS)


def test_document_counts_variants_and_sets() -> None:
    """docs/guarantees.md states the right numbers of runs, variants and sets."""
    text = DOCUMENT.read_text(encoding="utf-8")
    assert re.findall(r"\((\d+) runs", text) == [str(len(VARIANTS) + len(SETS))]
    rows = re.findall(r"^\| `([\w-]+)`", text, re.MULTILINE)
    assert re.findall(r"each of the other (\d+) variants", text) == [
        str(len(VARIANTS) - len(set(rows) & set(VARIANTS)))
    ]
    assert re.findall(r"\d+ of (\d+) sets", text) == [str(len(SETS))]

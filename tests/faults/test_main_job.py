"""The main job under every variant of the stand-in: calls are found, assigned, checked, enrolled, rejected and settled."""

import os
import re
from pathlib import Path

import pytest
from redis.asyncio import Redis

from sandbox.variants import VARIANTS, choose
from tests.covering import covering_sets
from tests.main_job import NOT_KEPT, may_lose, not_kept

SETS = covering_sets()
DOCUMENT = Path(__file__).parents[2] / "docs/guarantees.md"
CHOSEN = SETS if os.environ.get("TEST_MODEL") == "nightly" else SETS[:8]
"""All pairs take minutes: for every change only the sets that hold most of them."""

ALONE = [
    pytest.param(name, id=name or "usual", marks=pytest.mark.night if any(name in names for names in SETS[:8]) else ())
    for name in ("", *VARIANTS)
]
"""A variant that is in one of those sets is tried alone at night only."""


@pytest.mark.parametrize("name", ALONE)
async def test_main_job_under_a_variant(name: str, redis: Redis) -> None:
    """Every promise is kept under each answer that the Spec allows, but for those that are listed as not kept."""
    names = [name] if name else []
    assert set(await not_kept(names, redis)) <= set(NOT_KEPT.get(name, ()))


@pytest.mark.night
async def test_main_job_with_the_limit_of_the_service_set(redis: Redis) -> None:
    """Where the setting says how many requests per second are answered, 5 are enough for a dozen calls at once."""
    assert not await not_kept(["limit-5"], redis, rps=5.0)


@pytest.mark.parametrize("names", CHOSEN, ids=lambda names: f"{names[0]} and {len(names) - 1} more")
async def test_main_job_under_many_variants(names: list[str], redis: Redis) -> None:
    """Variants of different questions go together: what is kept under each alone is kept under all of a set."""
    assert set(await not_kept(names, redis)) <= may_lose(names)


def test_sets_cover_every_pair() -> None:
    """Each set can be chosen, and every variant is in one together with every variant that may stand beside it."""
    for names in SETS:
        choose(names)
    assert {name for names in SETS for name in names} == set(VARIANTS)


def test_document_counts_variants_and_sets() -> None:
    """docs/guarantees.md says how many runs there are of each kind."""
    text = DOCUMENT.read_text(encoding="utf-8")
    assert re.findall(r"\((\d+) runs", text) == [str(len(VARIANTS) + len(SETS))]
    rows = re.findall(r"^\| `([\w-]+)`", text, re.MULTILINE)
    assert re.findall(r"each of the other (\d+) variants", text) == [
        str(len(VARIANTS) - len(set(rows) & set(VARIANTS)))
    ]
    assert re.findall(r"\d+ of (\d+) sets", text) == [str(len(SETS))]

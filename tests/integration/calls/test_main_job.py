"""The main job under every variant of the stand-in: calls are found, assigned, checked, enrolled, rejected and settled."""

import os

import pytest
from redis.asyncio import Redis

from sandbox.variants import VARIANTS, choose
from tests.covering import covering_sets
from tests.main_job import NOT_KEPT, may_lose, not_kept

SETS = covering_sets()
CHOSEN = SETS if os.environ.get("TEST_MODEL") == "nightly" else SETS[:8]
"""All pairs take minutes: for every change only the sets that hold most of them."""


@pytest.mark.parametrize("name", ["", *VARIANTS], ids=lambda name: name or "usual")
async def test_main_job_under_a_variant(name: str, redis: Redis) -> None:
    """Every promise is kept under each answer that the Spec allows, but for those that are listed as not kept."""
    names = [name] if name else []
    assert set(await not_kept(names, redis)) <= set(NOT_KEPT.get(name, ()))


@pytest.mark.parametrize("names", CHOSEN, ids=lambda names: f"{names[0]} and {len(names) - 1} more")
async def test_main_job_under_many_variants(names: list[str], redis: Redis) -> None:
    """Variants of different questions go together: what is kept under each alone is kept under all of a set."""
    assert set(await not_kept(names, redis)) <= may_lose(names)


def test_sets_cover_every_pair() -> None:
    """Each set can be chosen, and every variant is in one together with every variant that may stand beside it."""
    for names in SETS:
        choose(names)
    assert {name for names in SETS for name in names} == set(VARIANTS)

"""Each incident with real processes: the board, the doctor, metrics, alerts and /readyz name its cause, until it ends."""

import os
from collections.abc import Iterator

import pytest

from tests.acceptance.incidents import FREQUENT, INCIDENTS, Case, assert_told
from tests.acceptance.stack import Stack, stack

TRIED = INCIDENTS if os.environ.get("TEST_INCIDENTS") == "all" else FREQUENT


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Return a stack with two workers and no calls; every incident leaves it well."""
    with stack(tmp_path_factory.mktemp("incidents"), workers=2) as running:
        running.control("POST", "/push/sample", {"institution_key": "cu-1"})
        yield running


@pytest.mark.parametrize("case", TRIED, ids=lambda case: case.name.replace(" ", "-"))
def test_incident_is_told_alike_by_everybody(watched: Stack, case: Case) -> None:
    """Its cause is named by all of them, alone, and the alarm ends with it."""
    assert_told(case, watched)

"""Fixtures of the fault tests."""

from collections.abc import Iterator

import pytest

from tests.faults.site import Site, Stage, site
from tests.harness.archivist import database
from tests.harness.virtual_time import rig
from tests.longest_first import longest_first

__all__ = ["database", "rig"]

LONGEST_FIRST = [
    "crash_matrix",
    "request_budget",
    "incidents",
    "alert_rules",
    "redis_faults",
    "every_await",
    "main_job",
    "alerts",
    "recovery",
    "lost_checks",
    "archived_demo",
    "calls_at_once",
    "backup",
    "archive_postgresql",
    "model",
    "one_institution",
    "wakeups",
    "replaced_master",
    "archive_delivery",
]
"""Files by how long they take. Files that wait and files that compute alternate, so that both cores are busy."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest files first."""
    longest_first(items, LONGEST_FIRST)


@pytest.fixture(scope="session")
def _site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site(tmp_path_factory.mktemp("site")) as running:
        yield running


@pytest.fixture
def own_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Return a site for this test alone, so that it may kill the Redis server."""
    with site(tmp_path_factory.mktemp("own")) as running:
        yield running


@pytest.fixture
def stage(_site: Site) -> Iterator[Stage]:
    """Return an institution on the shared site."""
    with _site.stage() as lent:
        yield lent

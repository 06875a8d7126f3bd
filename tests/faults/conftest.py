"""Fixtures of the tests that kill, freeze and cut."""

from collections.abc import Iterator

import pytest

from tests.faults.site import Site, Stage, site


@pytest.fixture(scope="session")
def _site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site(tmp_path_factory.mktemp("site")) as running:
        yield running


@pytest.fixture
def own_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Return a site of the test's own: its Redis may be killed."""
    with site(tmp_path_factory.mktemp("own")) as running:
        yield running


@pytest.fixture
def stage(_site: Site) -> Iterator[Stage]:
    """Return an institution on the shared site."""
    with _site.stage() as lent:
        yield lent

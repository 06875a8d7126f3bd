"""One stack of real processes for tests that do not change it, and separate stacks for tests that do."""

from collections.abc import Iterator

import pytest

from tests.acceptance.stack import Stack, stack


@pytest.fixture(scope="session")
def _shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with stack(tmp_path_factory.mktemp("shared"), workers=2) as running:
        yield running


@pytest.fixture
def running(_shared: Stack) -> Iterator[Stack]:
    """Return a running stack with two workers, without faults."""
    yield _shared
    _shared.lift_faults()


@pytest.fixture
def lonely(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Return a stack for this test alone, with a single worker."""
    with stack(tmp_path_factory.mktemp("lonely"), workers=1) as running:
        yield running

"""One stack of real processes for tests that do not change it, and separate stacks for tests that do.

Most of these tests wait for processes, so more test processes run than there are cores.
"""

from collections.abc import Iterator

import pytest

from tests.harness.processes import Stack, stack
from tests.longest_first import longest_first

LONGEST_FIRST = [
    *("demonstration", "desk", "telemetry", "disturbed_job", "shadow", "main_job", "alert_sender"),
    *("doctor", "one_worker", "outage", "pause", "traces", "web_process"),
]
"""Files by how long they take."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest files first."""
    longest_first(items, LONGEST_FIRST)


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

"""The order of the rollout tests."""

import pytest

from tests.longest_first import longest_first

LONGEST_FIRST = ["migration", "versions", "rotation", "procfile", "rules", "desk_client"]
"""Each test process starts with two tests. In this order it gets a long one and a short one."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest tests first."""
    longest_first(items, LONGEST_FIRST)

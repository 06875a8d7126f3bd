"""The order of tests that take very different times. If a long one began last, one process would work and others wait."""

from collections.abc import Sequence

import pytest


def longest_first(items: list[pytest.Item], names: Sequence[str]) -> None:
    """Move tests to the front that are named, or whose file is: in the order of the names, without ``test_``."""

    def place(item: pytest.Item) -> int:
        own = (item.path.stem, item.name.partition("[")[0])
        return min(names.index(name) if name in names else len(names) for name in (n[len("test_") :] for n in own))

    items.sort(key=place)

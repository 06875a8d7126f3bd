"""Which process runs which test: those of some files run in one process, because they share servers of their own.

The mark ``xdist_group`` of pytest-xdist 3.8 has no effect with pytest 9.2, which builds a test's id anew.
"""

from collections.abc import Collection
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]


class KeptTogether(LoadScopeScheduling):  # type: ignore[misc]  # its base has no types
    """Gives all tests of each of ``files`` (names without ``test_`` and ``.py``) to one process, others to an idle one."""

    def __init__(self, config: pytest.Config, log: Any, files: Collection[str]) -> None:
        super().__init__(config, log)
        self._files = {f"test_{name}.py" for name in files}

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return path if path.rpartition("/")[2] in self._files else nodeid

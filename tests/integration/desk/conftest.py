"""In this folder a rig has a board."""

import pytest

from tests.harness.desk import BoardRig


@pytest.fixture
def rig(board_rig: BoardRig) -> BoardRig:
    """Return a board over the shipped rules."""
    return board_rig

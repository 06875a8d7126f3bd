"""What is counted is what a whole callkeeper does."""

from tests.integration.calls.conftest import rig

__all__ = ["rig"]

"""A whole callkeeper in virtual time whose figures can be read."""

from tests.integration.calls.conftest import rig

__all__ = ["rig"]

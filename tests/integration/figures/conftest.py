"""A whole callkeeper in virtual time whose figures can be read."""

from tests.integration.calls.conftest import real_rig, rig

__all__ = ["real_rig", "rig"]

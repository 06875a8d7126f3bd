"""Figures are counted on a whole callkeeper."""

from tests.integration.calls.conftest import rig

__all__ = ["rig"]

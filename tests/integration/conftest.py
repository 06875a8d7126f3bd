"""Whole calls in virtual time, for every test that asks for a rig."""

from tests.harness.virtual_time import rig

__all__ = ["rig"]

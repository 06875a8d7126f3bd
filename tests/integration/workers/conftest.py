"""A whole callkeeper in virtual time, whose steps are looked at; also with a desk, or with a receiver of outcomes."""

from tests.integration.calls.conftest import hand, rig, store
from tests.integration.desk.conftest import courier, desk

__all__ = ["courier", "desk", "hand", "rig", "store"]

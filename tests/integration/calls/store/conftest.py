"""What is stored, over a whole callkeeper in virtual time, also with a receiver of outcomes."""

from tests.integration.desk.conftest import courier

__all__ = ["courier"]

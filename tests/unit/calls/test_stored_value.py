"""A stored value that this release cannot read is no value."""

import msgspec
import pytest

from callkeeper.calls.stored_value import readable


class Kept(msgspec.Struct):
    """Something small."""

    name: str


@pytest.mark.parametrize("stored", [None, b"", b"[", b"{}", b'{"name": 5}', b'{"name": "\xff"}'])
def test_value_that_is_missing_or_in_another_format_is_none(stored: bytes | None) -> None:
    """Whoever asks goes on as if nothing were stored."""
    assert readable(stored, Kept) is None


def test_field_that_a_newer_release_added_is_left_out() -> None:
    """Two releases run side by side on one Redis."""
    assert readable(b'{"name": "a", "newer": 1}', Kept) == Kept("a")
